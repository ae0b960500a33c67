"""Linear systems: a stationary Gaussian chain seen through a random linear map with noise.

z_1 ~ N(0, I), z_t ~ N(B z_{t-1}, I - BB'), x_t ~ N(C z_t + d, R). B is 0.95 times a rotation by π/5 in a random plane
(and the identity on the rest), C and d are standard normal, R = 0.3 I. The target is the true z. All parameters come
with the data, so that the exact smoother can be run on them.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float

from .dataset import Dataset, SplitName
from .streams import stream

TIME = 100
SIZES = {"small": (3, 5), "medium": (5, 10), "large": (10, 20)}
"""Latents and observed numbers."""


def parameters(size: str, seed: int) -> dict[str, np.ndarray]:
    """B, Q = I - BB', C, d and R of one size and seed."""
    k, dim = SIZES[size]
    rng = stream(seed, f"linear-{size}", "parameters")
    rotation = np.eye(k)
    c, s = np.cos(np.pi / 5), np.sin(np.pi / 5)
    rotation[:2, :2] = [[c, -s], [s, c]]
    basis = _orthogonal(rng.standard_normal((k, k)))
    B = 0.95 * basis @ rotation @ basis.T
    return {
        "B": B,
        "Q": np.eye(k) - B @ B.T,
        "C": rng.standard_normal((dim, k)),
        "d": rng.standard_normal(dim),
        "R": 0.3 * np.eye(dim),
    }


def _orthogonal(noise: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    """Uniformly distributed: QR of normal numbers, with the signs that make R's diagonal positive."""
    q, r = np.linalg.qr(noise)
    return q * np.sign(np.diag(r))


def linear(
    n: int = 200,
    *,
    size: Literal["small", "medium", "large"] = "medium",
    split: SplitName = "train",
    seed: int = 0,
) -> Dataset:
    """Make n sequences of 100 frames of a linear system.

    Args:
        n: the number of sequences. Fewer are the first ones of more.
        size: 3 latents seen through 5 numbers, 5 through 10, or 10 through 20.
        split: another split has other sequences of the same system.
        seed: another seed is another system.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, but is {n}")
    if size not in SIZES:
        raise ValueError(f"size must be one of {', '.join(map(repr, SIZES))}, not {size!r}")
    name, p = f"linear-{size}", parameters(size, seed)
    dim, k = p["C"].shape
    noise = stream(seed, name, split, "latent").standard_normal((n, TIME, k))
    L = np.linalg.cholesky(p["Q"])
    z = np.empty_like(noise)
    z[:, 0] = noise[:, 0]
    for t in range(1, TIME):
        z[:, t] = z[:, t - 1] @ p["B"].T + noise[:, t] @ L.T
    noise = stream(seed, name, split, "observation").standard_normal((n, TIME, dim))
    x = z @ p["C"].T + p["d"] + noise @ np.linalg.cholesky(p["R"]).T
    z = z.astype(np.float32)
    return Dataset(x.astype(np.float32), {"z": z}, {"z": z}, parameters=p)
