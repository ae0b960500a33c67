"""The auxiliary free energy: the lower bound of the likelihood that training maximises.

For each sequence, up to the constant -TJ log N, it is

    G^n = log Z^n + Σ_t Σ_j [ Φ(q_t) - Φ(p̄ ⊕ f_jt^n) - log 1/N Σ_n' exp( Φ(q_t ⊕ f_jt^n') - Φ(p̄ ⊕ f_jt^n') ) ]

with Φ(h, Λ) = ½h'Λ⁻¹h - ½log|Λ| and ⊕ the sum of natural parameters. log Z is the filter's normaliser, q_t the exact
posterior marginals, p̄ a fixed reference Gaussian (the stationary marginal N(0, I)), and the mixture runs over the
sequences of the batch at the same time t. No chain KL and no pairwise posterior covariances enter: for the exact q,
Σ_t <log fΔ>_q - KL(q‖p) = log Z identically.

A masked observation has the zero potential. Its bracket is dropped, and the mixtures of the others leave it out.

`marginal` and `offsets` choose the members of the mixture: the observations of the batch at the same time, also those
at other times, or a Gaussian with their moments.
"""

from typing import Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from .compiling import compiled
from .gaussian_marginal import gaussian_terms
from .general import natural_marginals, prior_covariances, prior_means, time_first
from .layout import Layout, Rows
from .linalg import eye_like, mm, mv, spd_inverse
from .pairs import pair_log_normalisers
from .shared_mixture import shared_terms
from .smoother import Covariance, Method, infer, precision_in_lanes
from .stationary import StationaryInference
from .types import Chain, Natural, Potentials, StationaryChain, as_potentials, standard_normal

Marginal = Literal["empirical", "gaussian"]


class FreeEnergyInfo(eqx.Module):
    """The terms of the free energy, summed over time: one per sequence, or per modality j and sequence.

    `free_energy = log_z + Σ_j (posterior - recognition - mixture)`.
    """

    free_energy: Float[Array, " batch"]
    log_z: Float[Array, " batch"]
    posterior: Float[Array, "modality batch"]  # Σ_t Φ(q_t)
    recognition: Float[Array, "modality batch"]  # Σ_t Φ(p̄ ⊕ f_t)
    mixture: Float[Array, "modality batch"]  # Σ_t log 1/N Σ_n' exp(...)
    observed: Float[Array, ""]  # number of observed (n, t, j)


class _Marginals(eqx.Module):
    """Posterior marginals, time first, in one of the layouts: (h, Λ), covariance and log-determinant of Λ."""

    h: Float[Array, "t ..."]
    precision: Float[Array, "t ..."]
    cov: Float[Array, "t ..."]
    logdet: Float[Array, "t c"]
    layout: Layout = eqx.field(static=True)

    def mean(self) -> Float[Array, "t ..."]:
        return self.layout.apply(self.cov, self.h)

    def phi(self) -> Float[Array, "t b"]:
        return 0.5 * self.layout.inner(self.h, self.mean()) - 0.5 * self.logdet


def free_energy(
    chain: Chain,
    potentials: Potentials | tuple[Potentials, ...],
    *,
    reference: Natural | None = None,
    posterior_gradient: bool = True,
    marginal: Marginal = "empirical",
    offsets: Int[Array, " r"] | tuple[int, ...] | None = None,
    method: Method = "auto",
    covariance: Covariance = "auto",
    lanes: int | None = None,
) -> tuple[Float[Array, ""], FreeEnergyInfo]:
    """The loss, -Σ_n G^n per observed (n, t, j), and its terms.

    `reference` is p̄ in natural parameters, (latent,) and (latent, latent), or with a leading time axis. The default is
    N(0, I) for the stationary chain, and for a general chain its marginals, moment-matched over the batch.
    `posterior_gradient=False` stops the gradient at the posterior marginals (as in EM; it tends to diverge).
    `marginal` is the distribution of observations: "empirical", or "gaussian" with the moments of all frames of the
    batch, for linear encoders and shared precisions.
    `offsets` extend the empirical mixture at time t to the frames of the batch at times t + offset (modulo T), for
    stationary data. The first offset must be 0.
    `lanes` is the number of pairs to compute in parallel with data-dependent precisions; None fits the cache.
    """
    potentials = as_potentials(potentials)
    _check_marginal(marginal, offsets, potentials)
    if offsets is not None:
        offsets = jnp.asarray(offsets, jnp.int32)
    return _free_energy(chain, potentials, reference, offsets, posterior_gradient, marginal, method, covariance, lanes)


@compiled("posterior_gradient", "marginal", "method", "covariance", "lanes")
def _free_energy(chain, potentials, reference, offsets, posterior_gradient, marginal, method, covariance, lanes):
    log_z, q = _posterior_marginals(chain, potentials, method, covariance)
    if not posterior_gradient:
        q = jax.lax.stop_gradient(q)
    standard = reference is None and isinstance(chain, StationaryChain)
    if reference is None:
        reference = default_reference(chain, potentials[0].h.dtype)
    if marginal == "gaussian":
        ref = _with_time(reference)
        terms = [gaussian_terms(q.mean(), q.cov, q.phi(), p, ref, q.layout, standard) for p in potentials]
    else:
        terms = [_modality(q, p, reference, standard, offsets, lanes) for p in potentials]
    posterior, recognition, mixture, observed = (jnp.stack(x) for x in zip(*terms, strict=True))
    G = log_z + jnp.sum(posterior - recognition - mixture, 0)
    count = jnp.sum(observed)
    loss = -jnp.sum(G) / jnp.maximum(count, 1)
    return loss, FreeEnergyInfo(G, log_z, posterior, recognition, mixture, count)


def default_reference(chain: Chain, dtype) -> Natural:
    """p̄: the marginal of the stationary chain, or a general chain's marginals, moment-matched over the batch."""
    if isinstance(chain, StationaryChain):
        return standard_normal(chain.latent_dim, dtype)
    prior = time_first(chain)
    m, S = prior_means(prior.m1, prior.A, prior.b), prior_covariances(prior.Q1, prior.A, prior.Q)
    centre = jnp.mean(m, 1, keepdims=True)
    spread = (m - centre)[..., :, None] * (m - centre)[..., None, :]
    precision, _ = spd_inverse(jnp.mean(S + spread, 1))
    return Natural(mv(precision, centre[:, 0]), precision)


def _posterior_marginals(chain, potentials, method, covariance):
    """log Z of each sequence, and the posterior marginals."""
    i = infer(chain, potentials, method=method, covariance=covariance)
    if isinstance(i, StationaryInference):
        h, precision = i.information_vector(), i.precision()
        cov, logdet = spd_inverse(precision, 1.0, i.layout)
        return i.log_z(i.layout.apply(cov, h)), _Marginals(h, precision, cov, logdet, i.layout)
    mean, cov = i.update(i.h + i.e, i.Lam + i.E)
    h, precision, logdet = natural_marginals(i, mean, cov)
    return i.log_z(mean), _Marginals(h, precision, cov, logdet, Rows)


def _check_marginal(marginal: Marginal, offsets: object, potentials: tuple[Potentials, ...]) -> None:
    if marginal == "gaussian" and offsets is not None:
        raise ValueError("offsets are for the empirical marginal: the gaussian one has the frames of all times already")
    if marginal == "gaussian" and not all(p.precision.shared for p in potentials):
        raise ValueError(
            'marginal="gaussian" needs precisions shared by all frames: use constant ones, or marginal="empirical"'
        )


def _with_time(reference: Natural) -> Natural:
    return Natural(jnp.atleast_2d(reference.h), jnp.atleast_3d(reference.precision.T).T)


def _modality(q: _Marginals, p: Potentials, reference: Natural, standard: bool, offsets, lanes):
    """Three sums over time of one modality, each (batch,), and its number of observations.

    `standard`: the reference is N(0, I).
    """
    ref = _with_time(reference)
    all_shared = p.precision.shared and p.mask is None and q.precision.shape[1] == 1
    if all_shared and q.layout is Rows and standard and offsets is None:
        return _all_shared(q, p)
    o = q.layout
    batch, time, _ = p.shape
    if o is Rows:
        h = jnp.moveaxis(p.masked_h(), 0, 1)
        h_ref, precision_ref = ref.h[:, None], ref.precision[:, None]
    else:
        h = jnp.moveaxis(p.masked_h(), 0, 2)
        h_ref, precision_ref = ref.h[..., None], ref.precision[..., None]
    h = _members(h, offsets, o)
    total = h + h_ref
    if p.precision.shared:
        Lam = p.precision.dense()
        S0, logdet0 = spd_inverse(ref.precision + Lam, float(standard))
        S0 = S0[:, None] if o is Rows else S0[..., None]
        phi_f = 0.5 * o.inner(total, o.apply(S0, total)) - 0.5 * logdet0[:, None]
        phi_pairs = _shared_pairs(q, h, Lam)
    else:
        Lam = jnp.moveaxis(p.masked_precision(), 0, 1) if o is Rows else precision_in_lanes(p)
        own = jnp.broadcast_to(q.precision, Lam.shape)
        Lam = _members(Lam, offsets, o)
        S0, logdet0 = spd_inverse(precision_ref + Lam, float(standard), o)
        phi_f = 0.5 * o.inner(total, o.apply(S0, total)) - 0.5 * logdet0
        phi_pairs = pair_log_normalisers(q.h, own, h, Lam, o, lanes)
    logits = phi_pairs - phi_f[:, None, :]
    phi_q, phi_f = q.phi(), phi_f[:, :batch]
    if p.mask is None:
        mixture = jax.nn.logsumexp(logits, -1) - jnp.log(jnp.asarray(logits.shape[-1], h.dtype))
        sums = (jnp.sum(x, 0) for x in (phi_q, phi_f, mixture))
        return (*sums, jnp.asarray(time * batch, h.dtype))
    mask = p.mask.T
    present = _members(mask, offsets, Rows)
    count = jnp.sum(present, -1, keepdims=True).astype(h.dtype)
    # without any observation the logits stay as they are: the result is dropped, but must be finite
    logits = jnp.where(present[:, None, :] | (count[..., None] == 0), logits, -jnp.inf)
    mixture = jax.nn.logsumexp(logits, -1) - jnp.log(jnp.maximum(count, 1))
    sums = (jnp.sum(jnp.where(mask, x, 0), 0) for x in (phi_q, phi_f, mixture))
    return (*sums, jnp.sum(mask).astype(h.dtype))


def _members(x: Array, offsets: Int[Array, " r"] | None, layout: Layout) -> Array:
    """The members of the mixture at each t: the frames of all sequences at t + offset, along the batch axis."""
    if offsets is None:
        return x
    time = x.shape[0]
    x = x[(jnp.arange(time, dtype=offsets.dtype)[:, None] + offsets) % time]  # (t, r, ...)
    if layout is Rows:
        return x.reshape(time, -1, *x.shape[3:])
    x = jnp.moveaxis(x, 1, -2)
    return x.reshape(*x.shape[:-2], -1)


def _all_shared(q: _Marginals, p: Potentials):
    """The sums of `_modality` for shared posterior and recognition covariances and the reference N(0, I)."""
    h, Lam = jnp.moveaxis(p.h, 0, 1), p.precision.dense()
    time, batch, _ = h.shape
    both = jnp.concatenate([(q.precision + Lam)[:, 0], (eye_like(Lam) + Lam)[None]])
    S, logdet = spd_inverse(both, 1.0)
    posterior, recognition, mixture = shared_terms(q.h, h, q.cov[:, 0], S[:-1], S[-1:])
    # logits carry -½log|Λ_q + Λ| + ½log|Λ_p̄ + Λ|, and the mean over the batch is a sum divided by its size
    constant = 0.5 * (time * logdet[-1] - jnp.sum(logdet[:-1])) - time * jnp.log(jnp.asarray(batch, h.dtype))
    return (
        jnp.sum(posterior, 0) - 0.5 * jnp.sum(q.logdet[:, 0]),
        jnp.sum(recognition, 0) - 0.5 * time * logdet[-1],
        jnp.sum(mixture, 0) + constant,
        jnp.asarray(time * batch, h.dtype),
    )


def _shared_pairs(q: _Marginals, h: Float[Array, "t ..."], Lam: Float[Array, "k k"]) -> Float[Array, "t b c"]:
    """Φ(q_t^n ⊕ f_t^n') for a shared precision of f: one factorisation per posterior, not per pair.

    With S = (Λ_q + Λ)⁻¹:  ½(h_q + h')'S(h_q + h') - ½log|Λ_q + Λ|  =  ½h_q'Sh_q + h_q'Sh' + ½h'Sh' - ½log|...|.
    """
    o = q.layout
    S, logdet = spd_inverse(q.precision + (Lam if o is Rows else Lam[..., None]), 0.0, o)
    left = o.apply(S, q.h)
    own = 0.5 * o.inner(q.h, left) - 0.5 * logdet
    if o is Rows and S.shape[1] == 1:
        other = 0.5 * o.inner(h, o.apply(S, h))[:, None, :]
        return own[..., None] + mm(left, jnp.swapaxes(h, -1, -2)) + other
    # h'S_n h' for all n, n': a product of (S_n as a row) with (h'h'' as a column)
    time, k = h.shape[0], Lam.shape[-1]
    outer = o.outer(h, h, 0)
    if o is Rows:
        other = mm(S.reshape(time, -1, k * k), jnp.swapaxes(outer.reshape(time, -1, k * k), -1, -2))
        return own[..., None] + mm(left, jnp.swapaxes(h, -1, -2)) + 0.5 * other
    other = mm(jnp.swapaxes(S.reshape(time, k * k, -1), -1, -2), outer.reshape(time, k * k, -1))
    return own[..., None] + mm(jnp.swapaxes(left, -1, -2), h) + 0.5 * other
