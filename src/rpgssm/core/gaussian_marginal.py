"""The terms of the free energy for a Gaussian distribution of observations.

The model is p(z_1..T) Π_t p₀(x_t) f(z_t | x_t)/F(z_t) with F(z) = ∫ p₀(x) f(z | x) dx. For the empirical p₀ of a batch,
F is a mixture of its N factors, and the gain of a frame is at most log N. N sharp factors cannot fill a space of many
dimensions: at this limit the likelihood no longer favours the true model.

With information vectors h linear in x and a constant precision Λ, a Gaussian p₀ with the data's mean and covariance
gives F in closed form, with S₀ = (Λ_p̄ + Λ)⁻¹ and the moments of h over all observed frames,

    F = N( S₀(h_p̄ + h̄), S₀ + S₀ Cov(h) S₀ ).

For Gaussian data this is the limit of infinitely many sequences. <log F>_q then has a closed form too.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .layout import Layout, Rows
from .linalg import mm, mv, spd_inverse, sym, transpose
from .types import Natural, Potentials


def gaussian_terms(
    mean: Float[Array, "t ..."],
    cov: Float[Array, "t ..."],
    phi_q: Float[Array, "t b"],
    p: Potentials,
    reference: Natural,
    layout: Layout,
    standard: bool,
) -> tuple[Float[Array, " b"], Float[Array, " b"], Float[Array, " b"], Float[Array, ""]]:
    """Σ_t Φ(q), Σ_t Φ(p̄ ⊕ f) and Σ_t (Φ(q) + <log F - log p̄>_q) over observed frames, and their number.

    `mean` and `cov` belong to q, time first in the given layout. The reference has a time axis, perhaps of length 1.
    """
    o, h = layout, p.masked_h()
    seen = jnp.ones(h.shape[:2], h.dtype) if p.mask is None else p.mask.astype(h.dtype)
    count = jnp.sum(seen)
    centre = jnp.sum(h, (0, 1)) / jnp.maximum(count, 1)
    d = ((h - centre) * seen[..., None]).reshape(-1, h.shape[-1])
    spread = mm(d.T, d) / jnp.maximum(count, 1)

    S0, logdet0 = spd_inverse(reference.precision + p.precision.dense(), float(standard))
    F_cov = sym(S0 + mm(mm(S0, spread), transpose(S0)))
    F_mean = mv(S0, reference.h + centre)
    F_precision, F_logdet = spd_inverse(F_cov)

    def vectors(x):  # one per frame
        return x[:, None] if o is Rows else x[..., None]

    time_first = jnp.moveaxis(h, 0, 1 if o is Rows else 2)
    total = time_first + vectors(reference.h)
    phi_f = 0.5 * o.inner(total, o.apply(vectors(S0), total)) - 0.5 * logdet0[:, None]
    # <log F - log p̄>_q = ½ <z'(Λ_p̄ - Λ_F)z>_q + <(h_F - h_p̄)'z>_q - ½ h_F'μ_F - ½ log|Σ_F|
    h_F = mv(F_precision, F_mean)
    curvature = vectors(reference.precision - F_precision)
    of_mean = o.inner(mean, 0.5 * o.apply(curvature, mean) + vectors(h_F - reference.h))
    of_cov = 0.5 * jnp.sum(curvature * cov, (o.row, o.column))
    constant = -0.5 * (jnp.sum(h_F * F_mean, -1) + F_logdet)[:, None]
    mixture = phi_q + of_mean + of_cov + constant
    posterior, recognition, mixture = (jnp.sum(x * seen.T, 0) for x in (phi_q, phi_f, mixture))
    return posterior, recognition, mixture, count
