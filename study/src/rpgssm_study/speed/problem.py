"""Inputs with a fixed seed: a stationary chain and potentials drawn from it.

The numbers are random but the same in every run: the chain's matrix has singular values spread over
`[0.90, 0.99]`, the precisions have eigenvalues between about 0.5 and 4.5, and the potentials are those of noisy
observations of a trajectory of the chain, so that the posterior is like those in training.
"""

from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float


@dataclass(frozen=True)
class Problem:
    """One batch of sequences, as `smooth` and `free_energy` take them, in plain arrays.

    `Λ` has shape `(K, K)` when it is shared by all frames, `(B, T, K, K)` when it depends on the data.
    """

    A: Float[Array, "latent latent"]
    h: Float[Array, "batch time latent"]
    Λ: Float[Array, "*frames latent latent"]
    mask: Bool[Array, "batch time"] | None = None

    @property
    def shared(self) -> bool:
        """Whether one precision serves every frame."""
        return self.Λ.ndim == 2

    @property
    def sizes(self) -> dict[str, int]:
        """Batch, time and latent sizes, for reports."""
        batch, time, latent = self.h.shape
        return {"batch": batch, "time": time, "latent": latent}


def make_problem(
    *,
    batch: int,
    time: int,
    latent: int,
    shared: bool,
    missing: float = 0.0,
    seed: int = 0,
    dtype: Any = jnp.float32,
) -> Problem:
    """Draw a chain, a trajectory per sequence and one noisy view of every frame.

        z_1 ~ N(0, I),   z_t = A z_{t-1} + N(0, I - A A'),   h_t = Λ_t z_t + N(0, Λ_t)

    which is the potential `(Λy, Λ)` of the observation `y = z + N(0, Λ⁻¹)`.

    Args:
        batch: number of sequences B.
        time: number of frames T of each.
        latent: dimension K.
        shared: one precision for all frames, or one for each.
        missing: fraction of frames to mask; 0 gives no mask at all.
        seed: seed of the generator.
        dtype: floating-point type of the result.
    """
    rng = np.random.default_rng(seed)
    A = _chain_matrix(rng, latent)
    noise = np.linalg.cholesky(np.eye(latent) - A @ A.T)
    z = np.empty((time, batch, latent))
    z[0] = rng.standard_normal((batch, latent))
    ε = rng.standard_normal((time, batch, latent)) @ noise.T
    for t in range(1, time):
        z[t] = z[t - 1] @ A.T + ε[t]
    z = z.swapaxes(0, 1)

    W = rng.standard_normal((latent, latent) if shared else (batch, time, latent, latent))
    Λ = 0.5 * np.eye(latent) + W @ W.swapaxes(-1, -2) / latent
    view = (np.linalg.cholesky(Λ) @ rng.standard_normal((batch, time, latent, 1)))[..., 0]
    h = (Λ @ z[..., None])[..., 0] + view
    mask = jnp.asarray(rng.random((batch, time)) >= missing) if missing > 0 else None
    return Problem(jnp.asarray(A, dtype), jnp.asarray(h, dtype), jnp.asarray(Λ, dtype), mask)


def _chain_matrix(rng: np.random.Generator, latent: int) -> np.ndarray:
    """`A = U diag(s) V'` with random orthogonal U, V and s evenly spaced in [0.90, 0.99]."""
    U, _ = np.linalg.qr(rng.standard_normal((latent, latent)))
    V, _ = np.linalg.qr(rng.standard_normal((latent, latent)))
    return (U * np.linspace(0.90, 0.99, latent)) @ V.T
