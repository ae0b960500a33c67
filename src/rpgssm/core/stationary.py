"""Inference for the stationary chain: everything relative to the marginal N(0, I), in natural parameters.

The chain reversed in time is of the same kind, z_t | z_{t+1} ~ N(A'z_{t+1}, I - A'A), so the messages from the past are
those of a filter run on the reversed kernel, past and future are treated alike (see `messages`), and both directions
run side by side: axis d, 0 for the messages from the past and 1 for those from the future.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .linalg import eye_like, inverse_factor, mm, sym, transpose
from .recurrence import Driver, linear_recurrence
from .types import StationaryChain
from .white import left, sandwich, white_information, white_step

_EINSUM = lax.Precision.HIGHEST


class WhiteKernels(NamedTuple):
    """Kernels z = K z' + N(0, N) with N = UU', one per direction, in coordinates that whiten the noise."""

    U: Float[Array, "d k k"]
    U_inv: Float[Array, "d k k"]
    R: Float[Array, "d k k"]  # U⁻¹K
    B: Float[Array, "d k k"]  # U'K'U⁻ᵀ


def white_kernels(chain: StationaryChain) -> WhiteKernels:
    """The reversed kernel (A', I - A'A) and the chain's own (A, I - AA')."""
    A, eye = chain.A, eye_like(chain.A)
    K = jnp.stack([A.T, A])
    N = eye - mm(K, transpose(K))
    U_inv = inverse_factor(N)
    U, R = mm(N, transpose(U_inv)), mm(U_inv, K)
    return WhiteKernels(U, U_inv, R, mm(transpose(U), transpose(R)))


class StationaryInference(NamedTuple):
    """All messages, time first. The covariance batch axis c is 1 if all sequences share their covariances.

    Λ has a time axis of length 1 if it is the same at all times.
    """

    h: Float[Array, "t b k"]
    Lam: Float[Array, "l c k k"]
    e: Float[Array, "t d b k"]
    E: Float[Array, "t d c k k"]
    S: Float[Array, "s d c k k"]
    logdet: Float[Array, "s d c"]
    kernels: WhiteKernels

    def precision(self) -> Float[Array, "t c k k"]:
        """Posterior precisions I + Λ + E_α + E_β: no less than the identity, always."""
        return eye_like(self.Lam) + self.Lam + jnp.sum(self.E, 1)

    def shift(self) -> Float[Array, "t b k"]:
        """Posterior information vectors."""
        return self.h + jnp.sum(self.e, 1)

    def log_determinant(self) -> Float[Array, " c"]:
        """log |J_posterior| - log |J_prior| of the whole chain."""
        return jnp.sum(self.logdet[:, 0], 0) + white_step(self.Lam[-1] + self.E[-1, 0])[1]

    def log_z(self, mean: Float[Array, "t b k"]) -> Float[Array, " b"]:
        """log ∫ p(z) Π_t ψ_t(z_t) dz = ½ h'J⁻¹h + determinants, given the smoothed means μ = J⁻¹h."""
        return 0.5 * jnp.sum(self.h * mean, (0, 2)) - 0.5 * self.log_determinant()

    def backward_gain(self) -> Float[Array, "s c k k"]:
        """J_t with E[z_t | z_{t+1}, frames up to t] = J_t z_{t+1} + ...: W'K = USR, see `messages`."""
        return left(self.kernels.U[:1], left_right(self.S[:, :1], self.kernels.R[:1]))[:, 0]

    def backward_covariance(self) -> Float[Array, "s c k k"]:
        """Cov[z_t | z_{t+1}, frames up to t] = Ñ = USU'."""
        return sandwich(self.kernels.U[:1], self.S[:, :1])[:, 0]


def left_right(X: Float[Array, "s d c i j"], B: Float[Array, "d j k"]) -> Float[Array, "s d c i k"]:
    """X B, very many times one matrix per direction."""
    return jnp.einsum("sdcij,djk->sdcik", X, B, precision=_EINSUM)


def infer_stationary(
    chain: StationaryChain,
    h: Float[Array, "t b k"],
    Lam: Float[Array, "l c k k"],
    driver: Driver,
    directions: int = 2,
) -> StationaryInference:
    """Messages in both directions, or only from the past."""
    w = WhiteKernels(*(x[:directions] for x in white_kernels(chain)))
    steps = h.shape[0] - 1
    both = lambda x: jnp.stack([x[:-1], x[:0:-1]][:directions], 1)  # noqa: E731  each direction in its own order
    constant = Lam.shape[0] == 1 and steps != 0
    Lam_both = jnp.broadcast_to(Lam[:, None], (1, directions, *Lam.shape[1:])) if constant else both(Lam)
    S, logdet = white_information(w.B, sandwich(transpose(w.U), Lam_both), steps, driver)  # pyright: ignore[reportGeneralTypeIssues]
    h_white = jnp.einsum("sdbk,dkl->sdbl", both(h), w.U, precision=_EINSUM)
    x = linear_recurrence(left(w.B, S), h_white, driver)
    e = jnp.einsum("sdbk,dkl->sdbl", x, w.U_inv, precision=_EINSUM)
    E = sym(sandwich(transpose(w.R), eye_like(S) - S))
    return StationaryInference(h, Lam, in_time(e), in_time(E), S, logdet, w)


def in_time(x: Float[Array, "s d *rest"]) -> Float[Array, "t d *rest"]:
    """Put messages in the order of time: the forward ones start, the backward ones end with the empty message."""
    empty = jnp.zeros_like(x, shape=(1, *x.shape[2:]))
    past = jnp.concatenate([empty, x[:, 0]])
    if x.shape[1] == 1:
        return past[:, None]
    return jnp.stack([past, jnp.concatenate([x[::-1, 1], empty])], 1)
