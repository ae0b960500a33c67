"""The linear tasks: a stationary Gaussian chain seen through a random linear map with noise.

z_1 ~ N(0, I), z_t ~ N(B z_{t-1}, I - BB'), x_t ~ N(C z_t + d, R). B is 0.95 times a rotation by π/5 in a random plane
(and the identity on the rest), C and d are standard normal, R = 0.3 I. The target is the true z. All parameters come
with the task, so that the exact smoother can be run on it.
"""

import numpy as np
from jaxtyping import Float

from .recipe import Made, Request
from .streams import stream
from .task import Split

VERSION = 1
TIME = 100
SIZES = {"linear-small": (3, 5), "linear-medium": (5, 10), "linear-large": (10, 20)}


def parameters(name: str, seed: int) -> dict[str, np.ndarray]:
    """B, Q = I - BB', C, d and R of one task and seed."""
    k, dim = SIZES[name]
    rng = stream(seed, name, "parameters")
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


def build(request: Request) -> Made:
    p = parameters(request.name, request.seed)
    splits = {split: _simulate(request, split, n, p) for split, n in request.sizes.items()}
    return Made(splits, dt=None, parameters=p, sources={"generator": "rpgssm.tasks.linear"})


def _simulate(request: Request, split: str, n: int, p: dict[str, np.ndarray]) -> Split:
    dim, k = p["C"].shape
    noise = stream(request.seed, request.name, split, "latent").standard_normal((n, TIME, k))
    L = np.linalg.cholesky(p["Q"])
    z = np.empty_like(noise)
    z[:, 0] = noise[:, 0]
    for t in range(1, TIME):
        z[:, t] = z[:, t - 1] @ p["B"].T + noise[:, t] @ L.T
    noise = stream(request.seed, request.name, split, "observation").standard_normal((n, TIME, dim))
    x = z @ p["C"].T + p["d"] + noise @ np.linalg.cholesky(p["R"]).T
    z = z.astype(np.float32)
    return Split(x.astype(np.float32), {"z": z}, {"z": z})
