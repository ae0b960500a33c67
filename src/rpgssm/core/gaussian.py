"""Gaussians in natural parameters, exp(-½ z'Λz + h'z): their normaliser, moments, divergence, density and samples.

In these parameters products of Gaussians are sums (`add`), which is why the library speaks them nearly everywhere. All
that is lost is what needs the normaliser: mean and covariance, densities, divergences. They are here.

Leading axes broadcast, between arguments and also between h and Λ of one Gaussian, so that a precision which a batch
shares is inverted once. Precisions must be symmetric and positive definite, except in `add`. Nothing differentiates
through a factorisation but `sample`: the others rest on `spd_inverse` and `log_normaliser`, which have derivative rules
of their own.
"""

import math
from functools import reduce

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .linalg import eye_like, mv, spd_inverse, sym, transpose
from .types import Moments, Natural, standard_normal


def log_normaliser(natural: Natural) -> Float[Array, "*lead"]:
    """Φ(h, Λ) = ½ h'Λ⁻¹h - ½ log|Λ|, the logarithm of ∫ exp(-½ z'Λz + h'z) dz without its constant ½ K log 2π."""
    return _log_normaliser(natural.h, natural.precision)


@jax.custom_jvp
def _log_normaliser(h: Float[Array, "*a k"], precision: Float[Array, "*b k k"]) -> Float[Array, "*c"]:
    cov, logdet = spd_inverse(precision)
    return _plus(0.5 * _dot(h, mv(cov, h)), -0.5 * logdet)


@_log_normaliser.defjvp
def _log_normaliser_jvp(primals, tangents):
    (h, precision), (dh, dprecision) = primals, tangents
    cov, logdet = spd_inverse(precision)
    mean = mv(cov, h)
    # Φ is convex with the expected sufficient statistics as its gradient, E z for h and -½ E zz' for Λ:
    #   dΦ = μ'dh - ½(Σ + μμ'):dΛ,   where μμ':dΛ = μ'(dΛ μ)
    # μ and Σ are again functions with derivative rules, so second derivatives are as safe as first ones.
    linear = _dot(mean, dh) - 0.5 * _dot(mean, mv(dprecision, mean))
    dphi = _plus(linear, -0.5 * jnp.sum(cov * dprecision, (-2, -1)))
    return _plus(0.5 * _dot(h, mean), -0.5 * logdet), dphi


def to_moments(natural: Natural) -> Moments:
    """Mean Λ⁻¹h and covariance Λ⁻¹."""
    cov = sym(spd_inverse(natural.precision)[0])
    return Moments(mv(cov, natural.h), cov)


def to_natural(moments: Moments) -> Natural:
    """Natural parameters h = Σ⁻¹μ and Λ = Σ⁻¹ of a mean and a (positive definite) covariance."""
    precision = sym(spd_inverse(moments.cov)[0])
    return Natural(mv(precision, moments.mean), precision)


def add(first: Natural, *others: Natural) -> Natural:
    """⊕, the product of (unnormalised) Gaussians: natural parameters add."""
    return reduce(lambda a, b: Natural(_plus(a.h, b.h), _plus(a.precision, b.precision)), others, first)


def zero_like(natural: Natural) -> Natural:
    """The neutral element of ⊕: the potential that says nothing."""
    return Natural(jnp.zeros_like(natural.h), jnp.zeros_like(natural.precision))


def kl(q: Natural, p: Natural) -> Float[Array, "*lead"]:
    """KL(q‖p) = E_q[log q(z) - log p(z)]. Not clipped: for q close to p rounding may leave it slightly negative."""
    Σ_q, logdet_q = spd_inverse(q.precision)
    Σ_p, logdet_p = spd_inverse(p.precision)
    μ_q = mv(Σ_q, q.h)
    # The textbook form is ½[(μ_p - μ_q)'Λ_p(μ_p - μ_q) + tr(Λ_pΣ_q) - K - log|Λ_p| + log|Λ_q|]. Written in differences
    # of natural parameters it is exactly 0 for q = p, rounding included:
    #   tr(Λ_pΣ_q) - K = tr((Λ_p - Λ_q)Σ_q)
    #   Λ_p(μ_p - μ_q) = h_p - Λ_pμ_q = (h_p - h_q) - (Λ_p - Λ_q)μ_q =: δ,   and the quadratic form is δ'Σ_pδ
    Δ = _plus(p.precision, -q.precision)
    δ = _plus(_plus(p.h, -q.h), -mv(Δ, μ_q))
    trace = jnp.sum(jnp.multiply(*_aligned(Δ, Σ_q)), (-2, -1))
    matrices = _plus(_plus(trace, logdet_q), -logdet_p)
    return 0.5 * _plus(_dot(δ, mv(Σ_p, δ)), matrices)


def log_prob(natural: Natural, z: Float[Array, "*zlead k"]) -> Float[Array, "*lead"]:
    """Log-density of the normalised Gaussian at z, constants included."""
    cov, logdet = spd_inverse(natural.precision)
    # -½z'Λz + h'z - Φ is a difference of large numbers for a mean far from 0; around the mean it is not
    centred = _plus(z, -mv(cov, natural.h))
    quadratic = _dot(centred, mv(natural.precision, centred))
    return -0.5 * _plus(quadratic, -logdet) - 0.5 * z.shape[-1] * math.log(2 * math.pi)


def sample(key: PRNGKeyArray, natural: Natural, shape: tuple[int, ...] = ()) -> Float[Array, "*out k"]:
    """Independent samples of shape (*shape, *leading axes, k), differentiable in the parameters."""
    h, Λ = natural.h, natural.precision
    lead = jnp.broadcast_shapes(h.shape[:-1], Λ.shape[:-2])
    ε = jax.random.normal(key, (*shape, *lead, h.shape[-1]), h.dtype)
    # With Λ = LL' and R = L⁻ᵀ, both the mean RR'h and the deviation Rε (of covariance RR' = Λ⁻¹) come from R, which is
    # computed once per matrix however many samples share it: z = R(R'h + ε).
    L = jnp.linalg.cholesky(Λ)
    eye = jnp.broadcast_to(eye_like(Λ), Λ.shape)
    R = transpose(lax.linalg.triangular_solve(L, eye, left_side=True, lower=True))
    return mv(R, _plus(mv(transpose(R), h), ε))


def _plus(a: Float[Array, "*a"], b: Float[Array, "*b"]) -> Float[Array, "*c"]:
    a, b = _aligned(a, b)
    return a + b


def _dot(a: Float[Array, "*a k"], b: Float[Array, "*b k"]) -> Float[Array, "*c"]:
    a, b = _aligned(a, b)
    return jnp.sum(a * b, -1)


def _aligned(a: Float[Array, "*a"], b: Float[Array, "*b"]) -> tuple[Float[Array, "*c"], Float[Array, "*d"]]:
    """Both with the same number of axes: those that are missing in front have length 1."""
    rank = max(a.ndim, b.ndim)
    return lax.expand_dims(a, range(rank - a.ndim)), lax.expand_dims(b, range(rank - b.ndim))


__all__ = [
    "add",
    "kl",
    "log_normaliser",
    "log_prob",
    "sample",
    "standard_normal",
    "to_moments",
    "to_natural",
    "zero_like",
]
