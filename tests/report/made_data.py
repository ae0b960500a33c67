"""Small data that turn, with what is to be read off them."""

import numpy as np

N, T, D = 8, 12, 4


def turning(n=N, t=T, seed=0):
    """Observations (n, t, 4) of two latents (n, t, 2)."""
    rng = np.random.default_rng(seed)
    A = 0.97 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    z = rng.normal(size=(n, t, 2))
    for i in range(1, t):
        z[:, i] = z[:, i - 1] @ A.T + 0.2 * z[:, i]
    x = z @ np.random.default_rng(7).normal(size=(2, D)) + 0.1 * rng.normal(size=(n, t, D))
    return x.astype(np.float32), z
