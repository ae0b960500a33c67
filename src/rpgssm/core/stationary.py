"""Inference for the stationary chain, in natural parameters relative to the marginal N(0, I).

The chain reversed in time is again a stationary chain, z_t | z_{t+1} ~ N(A'z_{t+1}, I - A'A). So the messages from the
past are those of a filter on the reversed kernel, and one recursion runs both directions in parallel (see
`information`). Covariances shared by all sequences are computed once, in `Rows`; else once per sequence, in the layout
that suits their size.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float

from .information import StationaryKernel, pull_back_stationary, stationary_kernel
from .layout import Layout, Rows
from .linalg import gram, inverse_factor, spd_inverse
from .recurrence import Driver, linear_recurrence
from .types import StationaryChain


class StationaryInference(eqx.Module):
    """All messages, time first, in one of the layouts.

    Matrices are (t, c, k, k) or (t, k, k, c), vectors (t, b, k) or (t, k, b). The covariances' batch axis c is 1 if all
    sequences share them, and the first axis of Λ is 1 if Λ is constant. Messages from the future are None for a filter.
    """

    h: Float[Array, "t ..."]
    Lam: Float[Array, "l ..."]
    e_past: Float[Array, "t ..."]
    E_past: Float[Array, "t ..."]
    e_future: Float[Array, "t ..."] | None
    E_future: Float[Array, "t ..."] | None
    gain: Float[Array, "s ..."]  # of the messages from the past
    logdet: Float[Array, " c"]  # Σ log|I + MN| along them
    N_inv: Float[Array, "k k"]  # of the reversed kernel
    layout: Layout = eqx.field(static=True)

    def precision(self) -> Float[Array, "t ..."]:
        """Posterior precisions I + Λ + E_past + E_future ≥ I."""
        past = self.layout.eye_like(self.Lam) + self.Lam + self.E_past
        return past if self.E_future is None else past + self.E_future

    def information_vector(self) -> Float[Array, "t ..."]:
        """Posterior information vectors."""
        past = self.h + self.e_past
        return past if self.e_future is None else past + self.e_future

    def log_determinant(self) -> Float[Array, " c"]:
        """log |J_posterior| - log |J_prior| of the whole chain."""
        last = self.layout.eye_like(self.Lam) + self.Lam[-1:] + self.E_past[-1:]
        return self.logdet + spd_inverse(last, 1.0, self.layout)[1][0]

    def log_z(self, mean: Float[Array, "t ..."]) -> Float[Array, " b"]:
        """log ∫ p(z) Π_t ψ_t(z_t) dz = ½ h'J⁻¹h + determinants, given the smoothed means μ = J⁻¹h."""
        return 0.5 * jnp.sum(self.layout.inner(self.h, mean), 0) - 0.5 * self.log_determinant()

    def backward_gain(self) -> Float[Array, "s ..."]:
        """J_t with E[z_t | z_{t+1}, frames up to t] = J_t z_{t+1} + ...: (I + NM)⁻¹K = G'."""
        return self.layout.transpose(self.gain)

    def backward_covariance(self) -> Float[Array, "s ..."]:
        """Cov[z_t | z_{t+1}, frames up to t] = (N⁻¹ + M)⁻¹."""
        M = self.Lam[:-1] + self.E_past[:-1] if self.Lam.shape[0] > 1 else self.Lam + self.E_past[:-1]
        N_inv = self.N_inv if self.layout is Rows else self.N_inv[..., None]
        return gram(inverse_factor(N_inv + M, 1.0, self.layout), self.layout)


def infer_stationary(
    chain: StationaryChain,
    h: Float[Array, "t ..."],
    Lam: Float[Array, "l ..."],
    driver: Driver,
    directions: int = 2,
    layout: Layout = Rows,
) -> StationaryInference:
    """Run the messages in both directions, or only from the past."""
    steps = h.shape[0] - 1
    kernel, log_N = stationary_kernel(chain.A)
    constant = Lam.shape[0] == 1 and steps != 0
    if layout is Rows:
        axis, sequences = 1, Lam.shape[1]
        kernel_both = StationaryKernel(*(x[:directions, None] for x in kernel))
    else:
        axis, sequences = -1, Lam.shape[-1]
        kernel_both = StationaryKernel(*(_in_lanes(x[:directions], sequences) for x in kernel))

    def both(x):
        """Stack the directions, each in its own order."""
        parts = [x[:-1], x[:0:-1]][:directions]
        return jnp.stack(parts, 1) if layout is Rows else jnp.concatenate(parts, -1)

    def split(x):
        """Split the directions, in the order of time; the first message from the past and the last future one are 0."""
        past, *future = jnp.split(x, directions, axis)
        past, *future = (x.squeeze(1) if layout is Rows else x for x in (past, *future))
        empty = jnp.zeros_like(past, shape=(1, *past.shape[1:]))
        return jnp.concatenate([empty, past]), jnp.concatenate([future[0][::-1], empty]) if future else None

    if not constant:
        Lam_both = both(Lam)
    elif layout is Rows:
        Lam_both = jnp.broadcast_to(Lam[:, None], (1, directions, *Lam.shape[1:]))
    else:
        Lam_both = jnp.concatenate([Lam] * directions, -1)
    m = pull_back_stationary(kernel_both, Lam_both, steps, driver, layout)
    e_past, e_future = split(linear_recurrence(m.G, both(h), None, driver, layout))
    E_past, E_future = split(m.E)
    first = (slice(None), 0) if layout is Rows else (..., slice(sequences))
    logdet = jnp.sum(m.logdet[first] + log_N[0], 0)
    return StationaryInference(h, Lam, e_past, E_past, e_future, E_future, m.G[first], logdet, kernel.N_inv[0], layout)


def _in_lanes(x: Float[Array, "d k k"], sequences: int) -> Float[Array, "k k n"]:
    """One matrix per direction, repeated for all sequences."""
    return jnp.repeat(jnp.moveaxis(x, 0, -1), sequences, -1)
