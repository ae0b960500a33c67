"""Small symmetric matrices, many at a time.

The library lives on very many K×K matrices with K between 1 and a few dozen. One LAPACK call per matrix costs more than
the arithmetic, so the functions here eliminate one row of all matrices at a time, by elementwise operations which
compilers vectorise well, in either of two layouts (`layout`).

Two ways to invert are offered, because they fail differently in float32:

* `spd_inverse` sweeps (Gauss-Jordan on a symmetric matrix): fastest, and the log-determinant falls out of the pivots.
* `spd_covariance` goes through a Cholesky factor and returns a Gram matrix, which cannot come out indefinite.

Both take a lower bound `floor` for the pivots. In this library nearly every matrix to invert is `I + (something
positive semidefinite)`; all pivots of such a matrix are at least 1 in exact arithmetic, so clamping them at 1 changes
nothing but rounding errors, and makes a NaN impossible.
"""

from functools import partial
from math import prod
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .layout import Lanes, Layout, Rows

mm, tmm, transpose, eye_like = Rows.mm, Rows.tmm, Rows.transpose, Rows.eye_like

BLOCK = 64  # so many matrices side by side fit the cache of a processor


def mv(a: Float[Array, "*a i j"], x: Float[Array, "*b j"]) -> Float[Array, "*c i"]:
    """Matrix times vector at the highest precision, leading axes broadcast."""
    return jnp.einsum("...ij,...j->...i", a, x, precision=lax.Precision.HIGHEST)


def sym(a: Float[Array, "..."], layout: Layout = Rows) -> Float[Array, "..."]:
    """The symmetric part."""
    return 0.5 * (a + layout.transpose(a))


def _pick(x, j, axis):
    return lax.dynamic_index_in_dim(x, j, axis, keepdims=False)


# ---------------------------------------------------------------------------------------------------------------------
# inverse and log-determinant by sweeping


def spd_inverse(
    M: Float[Array, "..."], floor: float = 0.0, layout: Layout = Rows
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Inverses and log-determinants of symmetric positive definite matrices.

    `floor` is a lower bound for the pivots known in advance (1 for matrices of the form I + positive semidefinite).
    """
    return _spd_inverse(M, floor, layout)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _spd_inverse(M, floor, layout) -> Any:
    if layout is Rows and _many(M):
        return _side_by_side(lambda M: sweep(M, M.shape[0], floor), M)
    return sweep(M, M.shape[layout.column], floor, layout)


def _many(M):
    """Whether matrices in `Rows` are better handled side by side."""
    *lead, k, _ = M.shape
    return prod(lead) >= 8 and k <= 24


def _side_by_side(function, M):
    """A function of matrices in `Lanes` for matrices in `Rows`; very many in blocks that fit a processor's cache."""
    *lead, k, _ = M.shape
    n = prod(lead)

    def several(M):
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), function(jnp.moveaxis(M, 0, -1)))

    M = M.reshape(n, k, k)
    if n <= 2 * BLOCK or jax.default_backend() != "cpu":
        found = several(M)
    else:
        blocks = -(-n // BLOCK)
        M = jnp.concatenate([M, jnp.broadcast_to(jnp.eye(k, dtype=M.dtype), (blocks * BLOCK - n, k, k))])
        found = lax.map(several, M.reshape(blocks, BLOCK, k, k))
        found = jax.tree.map(lambda x: x.reshape(blocks * BLOCK, *x.shape[2:])[:n], found)
    return jax.tree.map(lambda x: x.reshape(*lead, *x.shape[1:]), found)


def _spd_inverse_fwd(M, floor, layout):
    inv, logdet = _spd_inverse(M, floor, layout)  # pyright: ignore[reportGeneralTypeIssues]
    return (inv, logdet), inv


def _spd_inverse_bwd(floor, layout, inv, cotangents):
    # d(M⁻¹) = -M⁻¹ dM M⁻¹,   d log|M| = tr(M⁻¹ dM)
    inv_bar, logdet_bar = cotangents
    return (layout.expand(logdet_bar) * inv - layout.mm(layout.mm(inv, inv_bar), inv),)


_spd_inverse.defvjp(_spd_inverse_fwd, _spd_inverse_bwd)


def sweep(
    W: Float[Array, "..."], pivots: int, floor: float = 0.0, layout: Layout = Lanes
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Sweep the first `pivots` rows of symmetric matrices; also the log of the pivots' product.

    With W = [[M, h], [h', 0]] and all of M swept the result is [[M⁻¹, M⁻¹h], [h'M⁻¹, -h'M⁻¹h]] and log|M|: everything
    there is to know about the Gaussian exp(-½z'Mz + h'z).
    """
    down, across = layout.row, layout.column  # a row taken out of W is indexed along `across`
    least = _least(W, floor, layout)

    def take(j, W):
        row = _pick(W, j, down)
        p = jnp.maximum(_pick(row, j, across), _pick(least, j, across))
        return row, row / jnp.expand_dims(p, across), p

    # The row and its quotient are carried from one turn to the next so that they are computed once; fused into the
    # update, the division would be repeated for every element.
    def body(j, carry):
        W, row, quotient, p, logdet = carry
        # the pivot's row and column: row/p; the pivot itself: -1/p; the rest: W - row ⊗ row/p
        W = W - jnp.expand_dims(row, across) * jnp.expand_dims(quotient, down)
        edge = lax.dynamic_update_index_in_dim(quotient, -1 / p, j, across)
        W = lax.dynamic_update_index_in_dim(W, edge, j, down)
        W = lax.dynamic_update_index_in_dim(W, edge, j, across)
        return W, *take(jnp.minimum(j + 1, pivots - 1), W), logdet + jnp.log(p)

    first = take(0, W)
    W, _, _, _, logdet = lax.fori_loop(0, pivots, body, (W, *first, jnp.zeros_like(first[-1])))
    index = jnp.arange(W.shape[across])[:, None]
    swept = (index < pivots) & (index.T < pivots)
    return jnp.where(swept if layout is Rows else swept[..., None], -W, W), logdet


def _least(M, floor, layout):
    """Smallest pivots allowed: what is below the rounding error of its own diagonal entry is noise."""
    diagonal = jnp.einsum("...ii->...i" if layout is Rows else "...iin->...in", M)
    info = jnp.finfo(M.dtype)
    return jnp.maximum(0.5 * float(info.eps) * jnp.abs(diagonal), max(floor, float(info.tiny) ** 0.5))


# ---------------------------------------------------------------------------------------------------------------------
# factors and Gram matrices


def cholesky_psd(M: Float[Array, "..."], layout: Layout = Rows) -> Float[Array, "..."]:
    """Lower factor L with LL' = M for positive *semi*definite M: a vanishing pivot gives a column of zeros.

    Not differentiable where M is singular; used inside functions that have their own derivative rules.
    """
    if layout is Rows:
        return _side_by_side(lambda M: cholesky_psd(M, Lanes), M)
    W, k = M, M.shape[0]
    index = jnp.arange(k)[:, None]
    # a pivot smaller than the rounding error of its own diagonal entry is zero
    threshold = 4 * k * jnp.finfo(M.dtype).eps * jnp.maximum(jnp.einsum("iin->in", W), 0)

    def take(j, W):
        row = _pick(W, j, 0)
        p = _pick(row, j, 0)
        ok = p > _pick(threshold, j, 0)
        return jnp.where((index >= j) & ok, row * lax.rsqrt(jnp.where(ok, p, 1)), 0)

    # carried from one turn to the next, as in `sweep`: fused into the update, the root would be taken for every element
    def body(j, carry):
        W, L, column = carry
        W = W - column[:, None] * column[None]
        return W, lax.dynamic_update_index_in_dim(L, column, j, 1), take(jnp.minimum(j + 1, k - 1), W)

    return lax.fori_loop(0, k, body, (W, jnp.zeros_like(W), take(0, W)))[1]


def inverse_factor(M: Float[Array, "..."], floor: float = 0.0, layout: Layout = Rows) -> Float[Array, "..."]:
    """Lower triangular Z with Z'Z = M⁻¹, the inverse of the Cholesky factor of M, for positive definite M.

    `floor` is a lower bound for the pivots known in advance. No pivot is taken smaller than that or than the rounding
    error of its diagonal entry, so the result is finite whatever rounding has done to M.
    """
    return _inverse_factor(M, floor, layout)


@partial(jax.custom_vjp, nondiff_argnums=(1, 2))
def _inverse_factor(M, floor, layout) -> Any:
    if layout is Rows and _many(M):
        return _side_by_side(lambda M: inverse_factor(M, floor, Lanes), M)
    down, across = layout.row, layout.column  # a row taken out of M is indexed along `across`
    k = M.shape[across]
    index = jnp.arange(k) if layout is Rows else jnp.arange(k)[:, None]
    least = _least(M, floor, layout)

    def take(j, W, X):
        row = _pick(W, j, down)
        p = jnp.maximum(_pick(row, j, across), _pick(least, j, across))
        return row, jnp.where(index > j, row / jnp.expand_dims(p, across), 0), _pick(X, j, down), p

    # Gaussian elimination on [M | I]: what becomes of I is the inverse of the unit lower factor
    def body(j, carry):
        W, X, row, multiplier, x, p, pivots = carry
        multiplier = jnp.expand_dims(multiplier, across)
        W = W - multiplier * jnp.expand_dims(row, down)
        X = X - multiplier * jnp.expand_dims(x, down)
        pivots = lax.dynamic_update_index_in_dim(pivots, p, j, across)
        return W, X, *take(jnp.minimum(j + 1, k - 1), W, X), pivots

    X = jnp.broadcast_to(layout.eye_like(M), M.shape)
    _, X, *_, pivots = lax.fori_loop(0, k, body, (M, X, *take(0, M, X), jnp.zeros_like(least)))
    return X * jnp.expand_dims(lax.rsqrt(pivots), across)


def _inverse_factor_fwd(M, floor, layout):
    Z = _inverse_factor(M, floor, layout)
    return Z, Z


def _inverse_factor_bwd(floor, layout, Z, Z_bar):
    # With U = Z⁻¹: dU = U tril½(Z dM Z'), dZ = -Z dU Z = -tril½(Z dM Z') Z, where tril½ is the lower triangle with half
    # the diagonal. So M̄ = -Z' tril½(Z̄Z') Z, symmetrised.
    mm, t = layout.mm, layout.transpose
    k = Z.shape[layout.column]
    half = jnp.tril(jnp.ones((k, k), Z.dtype)) - 0.5 * jnp.eye(k, dtype=Z.dtype)
    half = half if layout is Rows else half[..., None]
    return (-sym(layout.tmm(Z, mm(half * mm(Z_bar, t(Z)), Z)), layout),)


_inverse_factor.defvjp(_inverse_factor_fwd, _inverse_factor_bwd)


def log_determinant(Z: Float[Array, "..."], layout: Layout = Rows) -> Float[Array, "..."]:
    """log|M| from the inverse Z of its Cholesky factor."""
    return -2 * jnp.sum(jnp.log(layout.diagonal(Z)), -1)


def gram(Z: Float[Array, "..."], layout: Layout = Rows) -> Float[Array, "..."]:
    """Z'Z, symmetric and positive definite also after rounding.

    The diagonal is raised by the rounding error of the product, in proportion to each entry.
    """
    k = Z.shape[layout.column]
    V = sym(layout.tmm(Z, Z), layout)
    return V if k == 1 else V * (1 + (4 + k / 4) * float(jnp.finfo(Z.dtype).eps) * layout.eye_like(V))


def spd_covariance(M: Float[Array, "..."], layout: Layout = Rows) -> Float[Array, "..."]:
    """Covariances M⁻¹ of precisions M ≥ I, symmetric and positive definite also after rounding."""
    return _spd_covariance(M, layout)


@partial(jax.custom_vjp, nondiff_argnums=(1,))
def _spd_covariance(M, layout) -> Any:
    return gram(inverse_factor(M, 1.0, layout), layout)


def _spd_covariance_fwd(M, layout):
    V = _spd_covariance(M, layout)
    return V, V


def _spd_covariance_bwd(layout, V, V_bar):
    return (-layout.mm(layout.mm(V, V_bar), V),)


_spd_covariance.defvjp(_spd_covariance_fwd, _spd_covariance_bwd)


@jax.custom_vjp
def shrink(X: Float[Array, "*n k k"], Y: Float[Array, "*n k k"]) -> Float[Array, "*n k k"]:
    """(X⁻¹ + Y)⁻¹ for positive semidefinite X and Y, singular or not: covariance X after an observation of precision Y.

    With X = LL' this is L(I + L'YL)⁻¹L', a Gram matrix: symmetric and positive semidefinite also after rounding.
    """
    L = cholesky_psd(X)
    Z = inverse_factor(eye_like(X) + sym(mm(tmm(L, Y), L)), 1.0)
    return gram(mm(Z, transpose(L)))


def _shrink_fwd(X, Y):
    S = shrink(X, Y)
    return S, (S, Y)


def _shrink_bwd(saved, S_bar):
    # dS = R dX R' - S dY S  with  R = (I + XY)⁻¹ = I - SY
    S, Y = saved
    R, S_bar = eye_like(S) - mm(S, Y), sym(S_bar)
    return mm(tmm(R, S_bar), R), -mm(mm(S, S_bar), S)


shrink.defvjp(_shrink_fwd, _shrink_bwd)
