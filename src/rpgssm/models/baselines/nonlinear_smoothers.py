"""Extended and unscented Kalman smoothers, for models that are known.

    z_1 ~ N(m1, Q1),   z_{t+1} ~ N(f(z_t), Q),   x_t ~ N(g(z_t), R)

with functions f and g that the user gives, for one state each. Both smoothers replace f and g, at each time, by an
affine function plus noise; what is left is a Gaussian chain with Gaussian potentials, and that the core smooths. They
differ in how a function is replaced around N(m, P):

* extended: by its tangent at m, f(z) ≈ f(m) + F (z - m), without noise;
* unscented: by its regression on z over sigma points of N(m, P), f(z) ≈ E f + F (z - m) with F = Cov(f, z) P⁻¹, and
  noise with the covariance Cov(f) - F P F' that the regression leaves.

At first N(m, P) is what a pass forward through the frames knows at each time: before the frame for g, after it for f.
That gives the textbook filters, and their Rauch-Tung-Striebel smoothers. With more `iterations` both functions are
replaced anew around the smoothed marginals: the Gauss-Newton method for the most likely trajectory (extended), or
posterior linearisation (unscented).

If f and g are affine, everything is exact after the first pass. An angle may go round: it is kept unwrapped.
"""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float

from rpgssm.core import GaussianChain, OnlineState, Posterior, Potentials, Precision, online_step
from rpgssm.core import filter as core_filter
from rpgssm.core import smooth as core_smooth
from rpgssm.core.linalg import cholesky_psd, mm, mv, spd_inverse, sym, transpose

Kind = Literal["extended", "unscented"]
Function = Callable[[Float[Array, " i"]], Float[Array, " o"]]


class KnownModel(eqx.Module):
    """A state space model of which everything is known. m1 and Q1 may have a batch axis: one for each sequence."""

    m1: Float[Array, "*batch k"]
    Q1: Float[Array, "*either k k"]
    transition: Callable = eqx.field(static=True)
    Q: Float[Array, "k k"]
    emission: Callable = eqx.field(static=True)
    R: Float[Array, "d d"]


class Affine(NamedTuple):
    """F z + b + noise of covariance N, in place of a function."""

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

    `log_z` is that of the potentials in the last iteration, without the terms of p(x) that do not depend on the state:
    not for comparing sequences or models.
    """
    if iterations < 1:
        raise ValueError(f"iterations is {iterations}: at least one pass is needed")
    chain, potentials = _first_pass(model, x, mask, kind)
    posterior = core_smooth(chain, potentials)

    def again(_, moments):
        posterior = core_smooth(*_around(model, x, mask, kind, *moments))
        return posterior.mean, posterior.cov

    if iterations == 1:
        return posterior
    moments = lax.fori_loop(1, iterations - 1, again, (posterior.mean, posterior.cov))
    return core_smooth(*_around(model, x, mask, kind, *moments))


def filter_known(
    model: KnownModel, x: Float[Array, "n t d"], mask: Bool[Array, "n t"] | None = None, *, kind: Kind = "unscented"
) -> Posterior:
    """Filtered means and covariances of the states: the extended or unscented Kalman filter."""
    return core_filter(*_first_pass(model, x, mask, kind))


def linearise(function: Function, m: Float[Array, " i"], P: Float[Array, "i i"], kind: Kind) -> Affine:
    """The affine function, with its noise, that stands in for `function` around N(m, P)."""
    if kind == "extended":
        value, F = function(m), jax.jacfwd(function)(m)
        return Affine(F, value - mv(F, m), jnp.zeros((value.shape[0], value.shape[0]), value.dtype))
    if kind != "unscented":
        raise ValueError(f"kind must be 'extended' or 'unscented', not {kind!r}")
    k = m.shape[0]
    # The centre has the weight 1 - k/3 and 2k points at ±√3 standard deviations 1/6 each, which gives a normal's
    # moments up to the fourth in each direction. From k = 4 on a negative weight could make covariances indefinite:
    # then the points are at ±√k, and the centre is left out.
    spread = max(3.0, float(k))
    unit = jnp.concatenate([jnp.zeros((1, k), m.dtype), jnp.eye(k, dtype=m.dtype), -jnp.eye(k, dtype=m.dtype)])
    unit = spread**0.5 * unit
    weights = jnp.full((2 * k + 1,), 0.5 / spread, m.dtype).at[0].set(1 - k / spread)
    L = cholesky_psd(P)
    values = jax.vmap(function)(m[None] + jnp.einsum("ij,sj->si", L, unit))
    mean = jnp.einsum("s,so->o", weights, values)
    around = values - mean[None]
    # With z = m + Lε, Cov(f, z) P⁻¹ = Cov(f, ε) L⁻¹. Directions without spread (columns of zeros in L) have no slope.
    slope = jnp.einsum("s,so,si->oi", weights, around, unit)
    pivot = jnp.diagonal(L)
    flat = pivot <= 0
    solvable = L + jnp.diag(jnp.where(flat, jnp.ones_like(pivot), jnp.zeros_like(pivot)))
    F = jax.scipy.linalg.solve_triangular(solvable, slope.T, lower=True, trans=1).T
    F = jnp.where(flat[None], jnp.zeros_like(F), F)
    # Cov(f) - F P F', as the covariance of what the regression leaves: positive semidefinite also after rounding
    left = around - jnp.einsum("oi,si->so", slope, unit)
    return Affine(F, mean - mv(F, m), sym(jnp.einsum("s,so,sp->op", weights, left, left)))


def _first_pass(model: KnownModel, x, mask, kind: Kind) -> tuple[GaussianChain, Potentials]:
    """Run through the frames once; returns the chain and potentials that stand in for the model."""
    n, t, _ = x.shape
    k = model.m1.shape[-1]
    m1 = jnp.broadcast_to(model.m1, (n, k))
    Q1 = jnp.broadcast_to(model.Q1, (n, k, k))
    seen = jnp.ones((t, n), bool) if mask is None else mask.T
    still = _standing_still(m1)

    def step(carry, now):
        m, P = carry
        x_t, seen_t = now
        h, Lam = _potential(model, x_t, seen_t, *_each(model.emission, m, P, kind))
        state = OnlineState(m, P, jnp.zeros_like(m[:, 0]), jnp.zeros((), jnp.int32))
        filtered = online_step(still, state, h, Lam)[1]
        f = _each(model.transition, filtered.mean, filtered.cov, kind)
        Q = model.Q[None] + f.N
        ahead = mv(f.F, filtered.mean) + f.b, sym(mm(mm(f.F, filtered.cov), transpose(f.F)) + Q)
        return ahead, (h, Lam, f.F, f.b, Q)

    _, found = lax.scan(step, (m1, Q1), (jnp.swapaxes(x, 0, 1), seen))
    h, Lam, F, b, Q = (jnp.moveaxis(y, 0, 1) for y in found)
    return _chain(m1, Q1, F[:, :-1], b[:, :-1], Q[:, :-1]), _potentials(h, Lam)


def _around(model: KnownModel, x, mask, kind: Kind, mean, cov) -> tuple[GaussianChain, Potentials]:
    """Chain and potentials that stand in for the model around given marginals."""
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
    return _chain(m1, Q1, F, b, N + model.Q[None, None]), potentials


def _each(function: Function, m, P, kind: Kind) -> Affine:
    return jax.vmap(lambda m, P: linearise(function, m, P, kind))(m, P)


def _potential(model: KnownModel, x, seen, H, d, N) -> tuple[Any, Any]:
    """What x ~ N(H z + d, R + N) says of z, in natural parameters: zero where nothing was seen."""
    x = jnp.where(seen[:, None], x, jnp.zeros_like(x))
    weights = mm(transpose(H), spd_inverse(model.R[None] + N)[0])
    h, Lam = mv(weights, x - d), sym(mm(weights, H))
    return jnp.where(seen[:, None], h, jnp.zeros_like(h)), jnp.where(seen[:, None, None], Lam, jnp.zeros_like(Lam))


def _potentials(h, Lam) -> Potentials:
    return Potentials(h, Precision(Lam, shared=False, diagonal=False))


def _chain(m1, Q1, A, b, Q) -> GaussianChain:
    return GaussianChain(m1, Q1, A, b, Q)


def _standing_still(m1) -> GaussianChain:
    """A chain that does not move, for taking in one frame at a time."""
    n, k = m1.shape
    eye = jnp.broadcast_to(jnp.eye(k, dtype=m1.dtype), (n, k, k))
    return GaussianChain(m1, eye, eye[:, None], jnp.zeros((n, 1, k), m1.dtype), jnp.zeros_like(eye)[:, None])
