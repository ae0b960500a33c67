"""Implementations that the library is compared with: dynamax's smoothers, and the loss in its textbook form.

**dynamax** has no potentials, but a potential `exp(-½ z'Λz + h'z)` with positive definite Λ is, up to a constant, the
likelihood of an observation `y = Λ⁻¹h` with emission matrix I and noise covariance `R = Λ⁻¹`:

    log N(y | z, Λ⁻¹) = h'z - ½ z'Λz - [ ½ y'Λy + ½ K log 2π - ½ log|Λ| ]

so both smooth the same chain, and dynamax's log-likelihood plus the bracket is our `log Z`. Under `vmap` with one R for
all sequences JAX itself notices that the covariances do not depend on the sequence and computes them once: with shared
precision dynamax saves as much as we do. `(y, R)` are computed before, and do not count.

**The textbook form** follows the formulas of the paper: a generic Kalman smoother for each sequence, the KL divergence
of the two chains from pairwise moments, and one Cholesky factorisation for each pair of sequences and each frame. It
equals the library's loss in exact arithmetic.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
from jax.scipy.linalg import solve_triangular
from jax.scipy.special import logsumexp
from jaxtyping import Array, Float

# ---------------------------------------------------------------------------------------------------------------------
# dynamax


class MissingPeer(ImportError):
    """A peer library is not installed."""


class Smoothed(NamedTuple):
    """The part of a smoother's output that the loss needs."""

    loglik: Float[Array, "batch"]
    mean: Float[Array, "batch time latent"]
    cov: Float[Array, "batch time latent latent"]


def _dynamax(module: Literal["inference", "parallel_inference"]) -> Any:
    """Import one of dynamax's inference modules."""
    import importlib

    try:
        return importlib.import_module(f"dynamax.linear_gaussian_ssm.{module}")
    except ImportError as error:
        raise MissingPeer(f"This measurement compares with dynamax: pip install dynamax ({error})") from error


def observations(
    h: Float[Array, "batch time latent"], Λ: Float[Array, "*frames latent latent"]
) -> tuple[Float[Array, "batch time latent"], Float[Array, "*frames latent latent"]]:
    """The observations `y = Λ⁻¹h` and their noise covariances `R = Λ⁻¹` that carry the potentials `(h, Λ)`."""
    R = jnp.linalg.inv(Λ)
    R = 0.5 * (R + R.swapaxes(-1, -2))
    return jnp.einsum("...ij,...j->...i", jnp.broadcast_to(R, (*h.shape, h.shape[-1])), h), R


def dynamax_smoother(
    form: Literal["sequential", "parallel"], output: Literal["full", "trimmed"]
) -> Callable[[Array, Array, Array], Any]:
    """Return a function `(A, y, R) -> posterior` that runs dynamax's smoother over a batch (not yet jitted).

    Args:
        form: dynamax's scan over time, or its associative scan.
        output: all that it returns, or only the fields of `Smoothed`, so that XLA can drop the rest (filtered moments,
            cross-covariances).

    R may be shared, `(K, K)`, or one for each frame, `(B, T, K, K)`.
    """
    inference = _dynamax("inference")
    smoother = (inference if form == "sequential" else _dynamax("parallel_inference")).lgssm_smoother

    def one(A: Array, y: Array, R: Array) -> Any:
        latent = A.shape[0]
        I, zero, none = jnp.eye(latent, dtype=A.dtype), jnp.zeros(latent, A.dtype), jnp.zeros((latent, 0), A.dtype)
        parameters = inference.ParamsLGSSM(
            initial=inference.ParamsLGSSMInitial(mean=zero, cov=I),
            dynamics=inference.ParamsLGSSMDynamics(weights=A, bias=zero, input_weights=none, cov=I - A @ A.T),
            emissions=inference.ParamsLGSSMEmissions(weights=I, bias=zero, input_weights=none, cov=R),
        )
        posterior = smoother(parameters, y)
        if output == "full":
            return posterior
        return Smoothed(posterior.marginal_loglik, posterior.smoothed_means, posterior.smoothed_covariances)

    def batched(A: Array, y: Array, R: Array) -> Any:
        return jax.vmap(one, in_axes=(None, 0, None if R.ndim == 2 else 0))(A, y, R)

    return batched


def log_z_of_loglik(
    loglik: Float[Array, "batch"], h: Float[Array, "batch time latent"], Λ: Float[Array, "*frames latent latent"]
) -> Float[Array, "batch"]:
    """`log Z = loglik + Σ_t [ ½ y'Λy + ½ K log 2π - ½ log|Λ| ]` with `y = Λ⁻¹h`, so that `y'Λy = h'y`."""
    batch, time, latent = h.shape
    y, _ = observations(h, Λ)
    logdet = jnp.broadcast_to(jnp.linalg.slogdet(Λ)[1], (batch, time))
    constant = 0.5 * jnp.sum(h * y, axis=-1) + 0.5 * latent * jnp.log(2 * jnp.pi).astype(h.dtype) - 0.5 * logdet
    return loglik + jnp.sum(constant, axis=-1)


# ---------------------------------------------------------------------------------------------------------------------
# The textbook form of the loss


class PairwiseMoments(NamedTuple):
    """Posterior moments of one sequence: marginals, and `Cov(z_t, z_{t+1})` of neighbours."""

    mean: Float[Array, "time latent"]
    cov: Float[Array, "time latent latent"]
    cross: Float[Array, "time-1 latent latent"]


def textbook_loss(
    A: Float[Array, "latent latent"], h: Float[Array, "batch time latent"], Λ: Float[Array, "*frames latent latent"]
) -> Float[Array, ""]:
    """The loss `-Σ_n G^n / BT`, term by term as the paper writes it.

        G^n = Σ_t <log fΔ(z_t | x_t^n)>_q - Σ_t log Γ̃_t^n - KL(q^n ‖ p)
        log Γ̃_t^n = Φ(p ⊕ f_t^n) - Φ(q_t^n) + log 1/N Σ_n' exp( Φ(q_t^n ⊕ f_t^n') - Φ(p ⊕ f_t^n') )

    A shared Λ is treated like any other: one copy for each frame.
    """
    batch, time, latent = h.shape
    Λ = jnp.broadcast_to(Λ, (batch, time, latent, latent))
    q = jax.vmap(_kalman_smoother, in_axes=(None, 0, 0))(A, h, Λ)
    log_factor = jax.vmap(jax.vmap(_expected_log_factor))(h, Λ, q.mean, q.cov)
    divergence = jax.vmap(_chain_divergence, in_axes=(None, 0))(A, q)

    Φ = _log_normaliser
    I = jnp.eye(latent, dtype=h.dtype)
    Λ_q = jnp.linalg.inv(q.cov)
    h_q = jnp.einsum("btij,btj->bti", Λ_q, q.mean)
    factor = jax.vmap(jax.vmap(lambda h, Λ: Φ(h, I + Λ)))(h, Λ)  # Φ(p ⊕ f_t^n)

    def pair(h_q: Array, Λ_q: Array, h: Array, Λ: Array) -> Array:  # Φ(q_t^n ⊕ f_t^n') of one n, one n', one t
        return Φ(h_q + h, Λ_q + Λ)

    over_time = jax.vmap(pair)
    over_factors = jax.vmap(over_time, in_axes=(None, None, 0, 0))
    over_posteriors = jax.vmap(over_factors, in_axes=(0, 0, None, None))
    logits = over_posteriors(h_q, Λ_q, h, Λ) - factor[None]  # (n, n', t)
    mixture = logsumexp(logits, axis=1) - jnp.log(jnp.asarray(batch, h.dtype))
    log_gamma = factor - jax.vmap(jax.vmap(Φ))(h_q, Λ_q) + mixture

    G = jnp.sum(log_factor - log_gamma, axis=1) - divergence
    return -jnp.sum(G) / (batch * time)


def _kalman_smoother(
    A: Float[Array, "latent latent"], h: Float[Array, "time latent"], Λ: Float[Array, "time latent latent"]
) -> PairwiseMoments:
    """Kalman filter and Rauch-Tung-Striebel smoother of one sequence, with lag-one cross-covariances."""
    I = jnp.eye(A.shape[0], dtype=A.dtype)
    Q = I - A @ A.T

    def forward(predicted: tuple[Array, Array], potential: tuple[Array, Array]) -> Any:
        m, P = predicted
        h, Λ = potential
        # (P⁻¹ + Λ)⁻¹ [P, P (P⁻¹m + h)] = (I + PΛ)⁻¹ [P, m + Ph]
        solved = jnp.linalg.solve(I + P @ Λ, jnp.concatenate([P, (m + P @ h)[:, None]], axis=1))
        P, m = solved[:, :-1], solved[:, -1]
        P = 0.5 * (P + P.T)
        return (A @ m, A @ P @ A.T + Q), (m, P)

    _, (m_filt, P_filt) = jax.lax.scan(forward, (jnp.zeros_like(h[0]), I), (h, Λ))

    def backward(smoothed: tuple[Array, Array], filtered: tuple[Array, Array]) -> Any:
        m_next, P_next = smoothed
        m, P = filtered
        P_pred = A @ P @ A.T + Q
        J = jnp.linalg.solve(P_pred, A @ P).T
        m = m + J @ (m_next - A @ m)
        P = P + J @ (P_next - P_pred) @ J.T
        P = 0.5 * (P + P.T)
        return (m, P), (m, P, J @ P_next)

    last = (m_filt[-1], P_filt[-1])
    _, (mean, cov, cross) = jax.lax.scan(backward, last, (m_filt[:-1], P_filt[:-1]), reverse=True)
    return PairwiseMoments(jnp.concatenate([mean, last[0][None]]), jnp.concatenate([cov, last[1][None]]), cross)


def _expected_log_factor(
    h: Float[Array, "latent"], Λ: Float[Array, "latent latent"], m: Float[Array, "latent"], P: Float[Array, "k k"]
) -> Float[Array, ""]:
    """`<log fΔ>_q = h'm - ½ tr Λ(P + mm')`."""
    return h @ m - 0.5 * jnp.sum(Λ * (P + jnp.outer(m, m)))


def _chain_divergence(A: Float[Array, "latent latent"], q: PairwiseMoments) -> Float[Array, ""]:
    """KL divergence of two Gaussian chains from their neighbouring pairs and their marginals.

        KL(q ‖ p) = Σ_{t=1}^{T-1} KL( q(z_t, z_{t+1}) ‖ p(z_t, z_{t+1}) ) - Σ_{t=2}^{T-1} KL( q(z_t) ‖ p(z_t) )

    where `p(z_t) = N(0, I)` and the pair of p has covariance `[[I, A'], [A, I]]`.
    """
    I = jnp.eye(A.shape[0], dtype=A.dtype)
    pair_mean = jnp.concatenate([q.mean[:-1], q.mean[1:]], axis=-1)
    pair_cov = jnp.block([[q.cov[:-1], q.cross], [q.cross.swapaxes(-1, -2), q.cov[1:]]])
    pairs = jax.vmap(_divergence, in_axes=(0, 0, None))(pair_mean, pair_cov, jnp.block([[I, A.T], [A, I]]))
    inner = jax.vmap(_divergence, in_axes=(0, 0, None))(q.mean[1:-1], q.cov[1:-1], I)
    return jnp.sum(pairs) - jnp.sum(inner)


def _divergence(m: Float[Array, "k"], P: Float[Array, "k k"], S: Float[Array, "k k"]) -> Float[Array, ""]:
    """`KL( N(m, P) ‖ N(0, S) ) = ½ [ tr S⁻¹(P + mm') - k + log|S| - log|P| ]`."""
    L_S, L_P = jnp.linalg.cholesky(S), jnp.linalg.cholesky(P)
    whitened = solve_triangular(L_S, jnp.concatenate([L_P, m[:, None]], axis=1), lower=True)
    logdets = 2 * jnp.sum(jnp.log(jnp.diagonal(L_S)) - jnp.log(jnp.diagonal(L_P)))
    return 0.5 * (jnp.sum(whitened**2) - m.shape[0] + logdets)


def _log_normaliser(h: Float[Array, "latent"], Λ: Float[Array, "latent latent"]) -> Float[Array, ""]:
    """`Φ(h, Λ) = ½ h'Λ⁻¹h - ½ log|Λ|` by one Cholesky factorisation."""
    L = jnp.linalg.cholesky(Λ)
    w = solve_triangular(L, h, lower=True)
    return 0.5 * (w @ w) - jnp.sum(jnp.log(jnp.diagonal(L)))
