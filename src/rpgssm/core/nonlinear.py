"""Extended and unscented Kalman filters and smoothers (EKF, UKF) of a known model.

    z_1 ~ N(m1, Q1),   z_{t+1} ~ N(f(z_t), Q),   x_t ~ N(g(z_t), R)

The user writes f and g as functions of one state. At each time both smoothers replace f and g by an affine function
plus noise. The result is a Gaussian chain with Gaussian potentials, which `smooth` and `filter` take. Around N(m, P),

* the extended smoother uses the tangent at m, f(z) ≈ f(m) + F (z - m), without noise;
* the unscented smoother uses the regression of f on z over sigma points of N(m, P), f(z) ≈ E f + F (z - m) with
  F = Cov(f, z) P⁻¹. The noise has the residual covariance Cov(f) - F P F'.

The first pass goes forward through the frames. For g, N(m, P) is the predicted marginal of each frame; for f it is the
filtered one. This gives the textbook filters, and their Rauch-Tung-Striebel smoothers. Further `iterations` linearise
around the smoothed marginals: Gauss-Newton for the most likely trajectory (extended), or posterior linearisation
(unscented).

For affine f and g the first pass is exact. A state that is an angle stays unwrapped.
"""

from collections.abc import Callable
from typing import Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from .linalg import cholesky_psd, mm, mv, spd_inverse, sym, transpose
from .online import OnlineState, online_step
from .smoother import filter, smooth
from .types import GaussianChain, Posterior, Potentials, Precision

Kind = Literal["extended", "unscented"]
Function = Callable[[Float[Array, " i"]], Float[Array, " o"]]


class KnownModel(eqx.Module):
    """A state space model with known functions and noise. m1 and Q1 may have a batch axis, one entry per sequence."""

    m1: Float[Array, "*batch k"]
    Q1: Float[Array, "*either k k"]
    transition: Callable = eqx.field(static=True)
    Q: Float[Array, "k k"]
    emission: Callable = eqx.field(static=True)
    R: Float[Array, "d d"]


class Affine(NamedTuple):
    """The function F z + b plus noise of covariance N."""

    F: Float[Array, "*n o i"]
    b: Float[Array, "*n o"]
    N: Float[Array, "*n o o"]


def smooth_known(
    model: KnownModel,
    x: Float[Array, "n t d"],
    mask: Bool[Array, "n t"] | None = None,
    *,
    kind: Kind = "unscented",
    iterations: int = 1,
) -> Posterior:
    """Smoothed means and covariances of the states. `mask` is False where a frame is missing.

    `log_z` belongs to the potentials of the last iteration. It lacks the terms of p(x) that do not depend on the state,
    so it does not compare sequences or models.
    """
    if iterations < 1:
        raise ValueError(f"iterations is {iterations}: at least one pass is needed")
    posterior = smooth(*_first_pass(model, x, mask, kind))

    def iterate(_, moments):
        posterior = smooth(*_linearised(model, x, mask, kind, *moments))
        return posterior.mean, posterior.cov

    if iterations == 1:
        return posterior
    moments = lax.fori_loop(1, iterations - 1, iterate, (posterior.mean, posterior.cov))
    return smooth(*_linearised(model, x, mask, kind, *moments))


def filter_known(
    model: KnownModel, x: Float[Array, "n t d"], mask: Bool[Array, "n t"] | None = None, *, kind: Kind = "unscented"
) -> Posterior:
    """Filtered means and covariances of the states: the extended or unscented Kalman filter."""
    return filter(*_first_pass(model, x, mask, kind))


def linearise(function: Function, m: Float[Array, " i"], P: Float[Array, "i i"], kind: Kind) -> Affine:
    """Replace `function` by an affine function plus noise around N(m, P)."""
    if kind == "extended":
        value, F = function(m), jax.jacfwd(function)(m)
        return Affine(F, value - mv(F, m), jnp.zeros((value.shape[0], value.shape[0]), value.dtype))
    if kind != "unscented":
        raise ValueError(f"kind must be 'extended' or 'unscented', not {kind!r}")
    k = m.shape[0]
    # The centre has weight 1 - k/3 and the 2k points at ±√3 standard deviations have 1/6 each. In each direction this
    # gives a normal's moments up to the fourth. For k ≥ 4 the centre's weight would be negative and could make
    # covariances indefinite: there the points lie at ±√k, and the centre has weight 0.
    spread = max(3.0, float(k))
    unit = jnp.concatenate([jnp.zeros((1, k), m.dtype), jnp.eye(k, dtype=m.dtype), -jnp.eye(k, dtype=m.dtype)])
    unit = spread**0.5 * unit
    weights = jnp.full((2 * k + 1,), 0.5 / spread, m.dtype).at[0].set(1 - k / spread)
    L = cholesky_psd(P)
    values = jax.vmap(function)(m[None] + jnp.einsum("ij,sj->si", L, unit))
    mean = jnp.einsum("s,so->o", weights, values)
    deviation = values - mean[None]
    # With z = m + Lε, Cov(f, z) P⁻¹ = Cov(f, ε) L⁻¹. Directions without variance (columns of zeros in L) have no slope.
    slope = jnp.einsum("s,so,si->oi", weights, deviation, unit)
    pivot = jnp.diagonal(L)
    flat = pivot <= 0
    solvable = L + jnp.diag(jnp.where(flat, jnp.ones_like(pivot), jnp.zeros_like(pivot)))
    F = jax.scipy.linalg.solve_triangular(solvable, slope.T, lower=True, trans=1).T
    F = jnp.where(flat[None], jnp.zeros_like(F), F)
    # Cov(f) - F P F' is the covariance of the residuals: in this form rounding keeps it positive semidefinite
    residual = deviation - jnp.einsum("oi,si->so", slope, unit)
    return Affine(F, mean - mv(F, m), sym(jnp.einsum("s,so,sp->op", weights, residual, residual)))


def _first_pass(model: KnownModel, x, mask, kind: Kind) -> tuple[GaussianChain, Potentials]:
    """Filter all frames, linearising around predicted and filtered marginals; return chain and potentials."""
    n, t, _ = x.shape
    k = model.m1.shape[-1]
    m1 = jnp.broadcast_to(model.m1, (n, k))
    Q1 = jnp.broadcast_to(model.Q1, (n, k, k))
    seen = jnp.ones((t, n), bool) if mask is None else mask.T
    constant = _constant_chain(m1)

    def step(carry, now):
        m, P = carry
        x_t, seen_t = now
        h, Lam = _potential(model, x_t, seen_t, *_each(model.emission, m, P, kind))
        state = OnlineState(m, P, jnp.zeros_like(m[:, 0]), jnp.zeros((), jnp.int32))
        filtered = online_step(constant, state, h, Lam)[1]
        f = _each(model.transition, filtered.mean, filtered.cov, kind)
        Q = model.Q[None] + f.N
        ahead = mv(f.F, filtered.mean) + f.b, sym(mm(mm(f.F, filtered.cov), transpose(f.F)) + Q)
        return ahead, (h, Lam, f.F, f.b, Q)

    _, found = lax.scan(step, (m1, Q1), (jnp.swapaxes(x, 0, 1), seen))
    h, Lam, F, b, Q = (jnp.moveaxis(y, 0, 1) for y in found)
    return GaussianChain(m1, Q1, F[:, :-1], b[:, :-1], Q[:, :-1]), _potentials(h, Lam)


def _linearised(model: KnownModel, x, mask, kind: Kind, mean, cov) -> tuple[GaussianChain, Potentials]:
    """Chain and potentials of the model linearised around given marginals."""
    n, t, k = mean.shape
    cov = jnp.broadcast_to(cov, (n, t, k, k))
    flat = mean.reshape(n * t, k), cov.reshape(n * t, k, k)
    seen = jnp.ones((n * t,), bool) if mask is None else mask.reshape(-1)
    h, Lam = _potential(model, x.reshape(n * t, -1), seen, *_each(model.emission, *flat, kind))
    before = mean[:, :-1].reshape(-1, k), cov[:, :-1].reshape(-1, k, k)
    f = _each(model.transition, *before, kind)
    F, b, N = (y.reshape(n, t - 1, *y.shape[1:]) for y in f)
    m1, Q1 = jnp.broadcast_to(model.m1, (n, k)), jnp.broadcast_to(model.Q1, (n, k, k))
    potentials = _potentials(h.reshape(n, t, k), Lam.reshape(n, t, k, k))
    return GaussianChain(m1, Q1, F, b, N + model.Q[None, None]), potentials


def _each(function: Function, m, P, kind: Kind) -> Affine:
    return jax.vmap(lambda m, P: linearise(function, m, P, kind))(m, P)


def _potential(model: KnownModel, x, seen, H, d, N) -> tuple[Float[Array, "n k"], Float[Array, "n k k"]]:
    """The likelihood of z under x ~ N(H z + d, R + N), in natural parameters; zero for missing frames."""
    x = jnp.where(seen[:, None], x, jnp.zeros_like(x))
    weights = mm(transpose(H), spd_inverse(model.R[None] + N)[0])
    h, Lam = mv(weights, x - d), sym(mm(weights, H))
    return jnp.where(seen[:, None], h, jnp.zeros_like(h)), jnp.where(seen[:, None, None], Lam, jnp.zeros_like(Lam))


def _potentials(h, Lam) -> Potentials:
    return Potentials(h, Precision(Lam, shared=False, diagonal=False))


def _constant_chain(m1) -> GaussianChain:
    """A chain with z_{t+1} = z_t: with it, `online_step` only conditions on a frame."""
    n, k = m1.shape
    eye = jnp.broadcast_to(jnp.eye(k, dtype=m1.dtype), (n, k, k))
    return GaussianChain(m1, eye, eye[:, None], jnp.zeros((n, 1, k), m1.dtype), jnp.zeros_like(eye)[:, None])
