"""Data from a small linear Gaussian world, of which everything is known."""

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class World:
    """Observations (n, t, d), the latents behind them (n, t, k), and the inputs that pushed these, if any."""

    x: np.ndarray
    z: np.ndarray
    u: np.ndarray | None = None


def rotation(angle: float, scale: float) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return scale * np.array([[c, -s], [s, c]])


A = rotation(0.3, 0.97)
C = np.random.default_rng(7).normal(size=(6, 2))


def simulate(n=64, t=40, seed=0, noise=0.5, push=None) -> World:
    """z rotates slowly and is seen through 6 noisy numbers; `push` (2, u) lets random inputs act on it."""
    rng = np.random.default_rng(seed)
    L = np.linalg.cholesky(np.eye(2) - A @ A.T)
    z = np.zeros((n, t, 2))
    u = None if push is None else rng.normal(size=(n, t, push.shape[1]))
    z[:, 0] = rng.normal(size=(n, 2))
    for i in range(1, t):
        z[:, i] = z[:, i - 1] @ A.T + rng.normal(size=(n, 2)) @ L.T
        if u is not None and push is not None:
            z[:, i] += u[:, i - 1] @ push.T
    x = z @ C.T + noise * rng.normal(size=(n, t, 6))
    return World(x.astype(np.float32), z, None if u is None else u.astype(np.float32))


def linear_r2(latents, z) -> float:
    """R² of a linear readout, averaged over the dimensions of z; fitted on the first half of sequences, of the rest."""
    half = len(latents) // 2
    parts = []
    for y in (latents[:half], latents[half:]):
        flat = np.concatenate([np.asarray(row, float) for row in y])
        parts.append(np.concatenate([flat, np.ones((len(flat), 1))], 1))
    first, second = np.concatenate(list(z[:half])), np.concatenate(list(z[half:]))
    weights = np.linalg.lstsq(parts[0], first, rcond=None)[0]
    error = ((second - parts[1] @ weights) ** 2).sum(0)
    return float(np.mean(1 - error / ((second - second.mean(0)) ** 2).sum(0)))
