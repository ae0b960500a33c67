"""Inference for the stationary chain: everything relative to the marginal N(0, I), in natural parameters.

The chain reversed in time is of the same kind, z_t | z_{t+1} ~ N(A'z_{t+1}, I - A'A), so the messages from the past are
those of a filter run on the reversed kernel, and past and future are treated alike (see `messages`).
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float

from .linalg import eye_like, mm, spd_inverse
from .messages import Kernels, Messages, pull_back
from .recurrence import Driver, linear_recurrence
from .types import StationaryChain


class StationaryInference(NamedTuple):
    """All messages, time first. The covariance batch axis c is 1 if all sequences share their covariances."""

    h: Float[Array, "t b k"]
    Lam: Float[Array, "t c k k"]
    e: Float[Array, "t d b k"]  # messages from the past (d = 0) and from the future (d = 1)
    E: Float[Array, "t d c k k"]
    messages: Messages

    def precision(self) -> Float[Array, "t c k k"]:
        """Posterior precisions I + Λ + E_α + E_β: no less than the identity, always."""
        return eye_like(self.Lam) + self.Lam + jnp.sum(self.E, 1)

    def shift(self) -> Float[Array, "t b k"]:
        """Posterior information vectors."""
        return self.h + jnp.sum(self.e, 1)

    def log_determinant(self) -> Float[Array, " c"]:
        """log |J_posterior| - log |J_prior| of the whole chain."""
        last = eye_like(self.Lam) + self.Lam[-1] + self.E[-1, 0]
        return jnp.sum(self.messages.logdet[:, 0], 0) + spd_inverse(last, 1.0)[1]

    def log_z(self, mean: Float[Array, "t b k"]) -> Float[Array, " b"]:
        """log ∫ p(z) Π_t ψ_t(z_t) dz = ½ h'J⁻¹h + determinants, given the smoothed means μ = J⁻¹h."""
        return 0.5 * jnp.sum(self.h * mean, (0, 2)) - 0.5 * self.log_determinant()


def kernels(chain: StationaryChain) -> Kernels:
    """Reversed and forward kernel of the chain."""
    A, eye = chain.A, eye_like(chain.A)
    K = jnp.stack([A.T, A])
    N = jnp.stack([eye - mm(A.T, A), eye - mm(A, A.T)])
    return Kernels(K[None, :, None], N[None, :, None])


def infer_stationary(
    chain: StationaryChain,
    h: Float[Array, "t b k"],
    Lam: Float[Array, "t c k k"],
    driver: Driver,
    directions: int = 2,
) -> StationaryInference:
    """Messages in both directions, or only from the past."""
    K, N = kernels(chain)
    both = lambda x: jnp.stack([x[:-1], x[:0:-1]][:directions], 1)  # noqa: E731  each direction in its own order
    messages = pull_back(Kernels(K[:, :directions], N[:, :directions]), both(Lam), driver, True)
    x = linear_recurrence(messages.G, both(h), driver)
    return StationaryInference(h, Lam, in_time(x), in_time(messages.E), messages)


def in_time(x: Float[Array, "s d *rest"]) -> Float[Array, "t d *rest"]:
    """Put messages in the order of time: the forward ones start, the backward ones end with the empty message."""
    empty = jnp.zeros_like(x, shape=(1, *x.shape[2:]))
    past = jnp.concatenate([empty, x[:, 0]])
    if x.shape[1] == 1:
        return past[:, None]
    return jnp.stack([past, jnp.concatenate([x[::-1, 1], empty])], 1)
