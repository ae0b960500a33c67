"""Inference for a general chain: predicted moments from the past, natural-parameter messages from the future.

The chain is centred first: z_t = m_t + z̃_t with the prior mean m_t, so biases and initial means drop out of all
recursions. A potential (h, Λ) on z is the potential (h - Λm, Λ) on z̃, times exp(h'm - ½m'Λm).

The covariance recursion of the Kalman filter on z̃,

    P_{t+1} = Q_t + A_t (P_t⁻¹ + Λ_t)⁻¹ A_t'

is the message recursion M_{s+1} = Λ_{s+1} + K_s'(M_s⁻¹ + N_s)⁻¹K_s with other letters (M = P, Λ = Q, K = A', N = Λ).
Its gain G = K'(I + MN)⁻¹ = A(I + PΛ)⁻¹ moves the predicted means, m_{t+1} = G_t m_t + A_t V_t h_t, with the filtered
covariance V = (P⁻¹ + Λ)⁻¹. (The shorter G_t (m_t + P_t h_t) is equal, but loses all digits when Λ is large.) So one
recursion runs both directions in parallel, and never inverts P, Q or Λ.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .layout import Rows
from .linalg import eye_like, mm, mv, posterior_covariance, spd_inverse, sym, transpose
from .messages import Kernels, Messages, pull_back
from .recurrence import Driver, linear_recurrence
from .types import GaussianChain


class GeneralInference(NamedTuple):
    """All messages of the centred variables, time first. The covariances' batch axis c is 1 or the batch."""

    prior_mean: Float[Array, "t p k"]
    offset: Float[Array, " b"]  # Σ_t h'm - ½m'Λm
    h: Float[Array, "t b k"]
    Lam: Float[Array, "t c k k"]
    m: Float[Array, "t b k"]  # predicted means E[z̃_t | frames before t]
    P: Float[Array, "t c k k"]  # predicted covariances
    e: Float[Array, "t b k"]  # messages from the future
    E: Float[Array, "t c k k"]
    messages: Messages

    def update(self, g: Float[Array, "t b k"], M: Float[Array, "t c k k"]):
        """The predicted moments updated by the potential (g, M): V = (P⁻¹ + M)⁻¹, mean = m + V(g - Mm)."""
        V = posterior_covariance(self.P, M)
        return self.m + Rows.apply(V, g - Rows.apply(M, self.m)), V

    def log_determinant(self) -> Float[Array, " c"]:
        """log |J_posterior| - log |J_prior| = Σ_t log|I + P_tΛ_t|."""
        return jnp.sum(self.messages.logdet[:, 0], 0) + log_det_one_plus(self.P[-1], self.Lam[-1])

    def log_z(self, mean: Float[Array, "t b k"]) -> Float[Array, " b"]:
        """log ∫ p(z) Π_t ψ_t(z_t) dz, given the smoothed (centred) means."""
        return 0.5 * jnp.sum(self.h * mean, (0, 2)) - 0.5 * self.log_determinant() + self.offset


def log_det_one_plus(P: Float[Array, "*n k k"], M: Float[Array, "*n k k"]) -> Float[Array, "*n"]:
    """log|I + PM| by one step of messages without a kernel, for its derivative rule."""
    zero, P_, M_ = (x.reshape(1, 1, -1, *x.shape[-2:]) for x in (jnp.zeros_like(P)[None, None], P, M))
    return pull_back(Kernels(zero, M_), P_).logdet.reshape(P.shape[:-2])


class TimeFirst(NamedTuple):
    """The arrays of a general chain with time first and a batch axis (length 1 if all sequences share the chain)."""

    m1: Float[Array, "p k"]
    Q1: Float[Array, "p k k"]
    A: Float[Array, "s p k k"]
    b: Float[Array, "s p k"]
    Q: Float[Array, "s p k k"]


def time_first(chain: GaussianChain) -> TimeFirst:
    m1, Q1, *timed = (x if chain.batched else x[None] for x in (chain.m1, chain.Q1, chain.A, chain.b, chain.Q))
    return TimeFirst(m1, Q1, *(jnp.moveaxis(x, 0, 1) for x in timed))


def prior_means(m1: Float[Array, "p k"], A: Float[Array, "s p k k"], b: Float[Array, "s p k"]):
    """Means m_1 .. m_T of the prior."""

    def step(m, inputs):
        m = mv(inputs[0], m) + inputs[1]
        return m, m

    return jnp.concatenate([m1[None], lax.scan(step, m1, (A, b))[1]])


def prior_covariances(Q1: Float[Array, "p k k"], A: Float[Array, "s p k k"], Q: Float[Array, "s p k k"]):
    """Marginal covariances S_1 .. S_T of the prior."""

    def step(S, inputs):
        S = sym(mm(mm(inputs[0], S), transpose(inputs[0])) + inputs[1])
        return S, S

    return jnp.concatenate([Q1[None], lax.scan(step, Q1, (A, Q))[1]])


def infer_general(
    chain: GaussianChain,
    h: Float[Array, "t b k"],
    Lam: Float[Array, "l c k k"],
    driver: Driver,
    directions: int = 2,
) -> GeneralInference:
    """Run the messages in both directions, or only from the past."""
    length = h.shape[0]
    if chain.A.shape[-3] != length - 1:
        raise ValueError(
            f"the chain has {chain.A.shape[-3]} transitions but {length} frames need {length - 1}: build it with "
            "GaussianChain.time_invariant(..., length=T), or give A, b and Q T - 1 entries along time"
        )
    prior = time_first(chain)
    Lam = jnp.broadcast_to(Lam, (length, *Lam.shape[1:]))
    mean = prior_means(prior.m1, prior.A, prior.b)
    Lm = Rows.apply(Lam, mean) if Lam.shape[1] == 1 else mv(Lam, mean)
    offset = jnp.sum((h - 0.5 * Lm) * mean, (0, 2))
    h = h - Lm

    # the inputs of each direction, in its own order
    c = max(Lam.shape[1], prior.A.shape[1])
    full = lambda x: jnp.broadcast_to(x, (x.shape[0], c, *x.shape[2:]))  # noqa: E731
    A, Q, Lam = full(prior.A), full(prior.Q), full(Lam)
    Q_before = jnp.concatenate([full(prior.Q1[None]), Q])
    pair = lambda past, future: jnp.stack([past, future[::-1]][:directions], 1)  # noqa: E731
    kernels = Kernels(pair(transpose(A), A), pair(Lam[:-1], Q))
    messages = pull_back(kernels, pair(Q_before[:-1], Lam[1:]), driver)
    E = in_time(messages.E)
    P = Q_before + E[:, 0]
    V = messages.Mt[:, 0]
    none = jnp.zeros_like
    moved = mv(prior.A, Rows.apply(V, h[:-1]))
    x = in_time(linear_recurrence(messages.G, pair(none(moved), h[1:]), pair(moved, none(moved)), driver))
    e_future, E_future = (x[:, 1], E[:, 1]) if directions == 2 else (none(h), none(Lam))
    return GeneralInference(mean, offset, h, Lam, x[:, 0], P, e_future, E_future, messages)


def in_time(x: Float[Array, "s d *rest"]) -> Float[Array, "t d *rest"]:
    """Put messages in the order of time; the first message from the past and the last future one are 0."""
    empty = jnp.zeros_like(x, shape=(1, *x.shape[2:]))
    past = jnp.concatenate([empty, x[:, 0]])
    if x.shape[1] == 1:
        return past[:, None]
    return jnp.stack([past, jnp.concatenate([x[::-1, 1], empty])], 1)


def natural_marginals(inference: GeneralInference, mean, V):
    """Posterior marginals (h, Λ) of the original variables, and log|Λ|, from centred moments."""
    precision, logdet = spd_inverse(V + eye_like(V) * jnp.finfo(V.dtype).tiny ** 0.5)
    return Rows.apply(precision, mean + inference.prior_mean), precision, -logdet
