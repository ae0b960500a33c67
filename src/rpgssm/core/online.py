"""Filtering one frame at a time: (state, potential) → state.

The state is the prediction of the next frame. The steps through a sequence give the filtered marginals and the log Z of
`smoother.filter` on the whole sequence.
"""

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .compiling import compiled
from .general import log_det_one_plus
from .information import StationaryKernel, information_step, stationary_kernel
from .linalg import eye_like, mm, mv, posterior_covariance, spd_covariance, spd_inverse, sym, transpose
from .types import Chain, GaussianChain, StationaryChain


class OnlineState(eqx.Module):
    """The prediction of z_t from frames 1..t-1, and their log-normaliser.

    For the stationary chain (a, C) is the message exp(-½z'Cz + a'z) relative to the prior N(0, I); for a general chain
    it is the predicted mean and covariance.
    """

    a: Float[Array, "batch k"]
    C: Float[Array, "batch k k"]
    log_z: Float[Array, " batch"]
    time: Int[Array, ""]


class OnlineOutput(eqx.Module):
    """The marginal of z_t given frames 1..t, and log Z of these frames."""

    mean: Float[Array, "batch k"]
    cov: Float[Array, "batch k k"]
    log_z: Float[Array, " batch"]


def online_start(chain: Chain, batch: int = 1) -> OnlineState:
    """The state before the first frame."""
    k, dtype = chain.latent_dim, chain.A.dtype
    zero, t = jnp.zeros((batch,), dtype), jnp.zeros((), jnp.int32)
    if isinstance(chain, StationaryChain):
        return OnlineState(jnp.zeros((batch, k), dtype), jnp.zeros((batch, k, k), dtype), zero, t)
    full = lambda x: jnp.broadcast_to(x, (batch, *x.shape[x.ndim - (1 if x is chain.m1 else 2) :]))  # noqa: E731
    return OnlineState(full(chain.m1), full(chain.Q1), zero, t)


@compiled()
def online_step(
    chain: Chain, state: OnlineState, h: Float[Array, "batch k"], Lam: Float[Array, "batch k k"]
) -> tuple[OnlineState, OnlineOutput]:
    """Condition on the potential (h, Λ) of one frame (zero if missing), then predict the next frame.

    Steps beyond the length of a general chain repeat its last transition.
    """
    if isinstance(chain, StationaryChain):
        return _stationary_step(chain, state, h, Lam)
    return _general_step(chain, state, h, Lam)


def _stationary_step(chain, state, h, Lam):
    g, M = h + state.a, Lam + state.C
    V = spd_covariance(eye_like(M) + M)
    mean = mv(V, g)
    last = spd_inverse(eye_like(M) + M, 1.0)[1]
    now = state.log_z + 0.5 * jnp.sum(g * mean, -1) - 0.5 * last
    # pull (g, M) back through the reversed kernel; this adds ½g'Sg - ½log|I + MN| to log Z, with S = (N⁻¹ + M)⁻¹
    kernel, log_N = stationary_kernel(chain.A)
    (E, G, logdet), Z = information_step(StationaryKernel(*(x[0] for x in kernel)), M)
    log_z = state.log_z + 0.5 * jnp.sum(mv(Z, g) ** 2, -1) - 0.5 * (logdet + log_N[0])
    return OnlineState(mv(G, g), E, log_z, state.time + 1), OnlineOutput(mean, V, now)


def _general_step(chain: GaussianChain, state, h, Lam):
    m, P = state.a, state.C
    V = posterior_covariance(P, Lam)
    r = h - mv(Lam, m)
    mean = m + mv(V, r)
    quadratic = jnp.sum(r * mv(V, r) + (h + r) * m, -1)
    log_z = state.log_z + 0.5 * quadratic - 0.5 * log_det_one_plus(P, Lam)
    t = jnp.minimum(state.time, chain.A.shape[-3] - 1)
    A, b, Q = (jnp.take(x, t, axis=-3 if x is not chain.b else -2) for x in (chain.A, chain.b, chain.Q))
    P = sym(mm(mm(A, V), transpose(A)) + Q)
    return OnlineState(mv(A, mean) + b, P, log_z, state.time + 1), OnlineOutput(mean, V, log_z)
