"""Linear algebra of many small symmetric matrices at a time.

The library works on many K×K matrices, with K between 1 and a few dozen. One LAPACK call per matrix costs more than the
arithmetic. So the functions here eliminate one row of all matrices at a time, by elementwise operations that compilers
vectorise, in either of two layouts (`layout`).

Two functions invert, because they fail differently in float32:

* `spd_inverse` sweeps (Gauss-Jordan on a symmetric matrix). It is fastest, and the pivots give the log-determinant.
* `spd_covariance` computes a Cholesky factor and returns a Gram matrix, which rounding cannot make indefinite.

Both bound the pivots from below, by `floor`. Nearly all matrices inverted here are `I + (positive semidefinite)`. Their
pivots are at least 1 in exact arithmetic, so clamping them at 1 changes rounding errors only, and prevents NaN.
"""

from math import prod

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .compiling import custom_vjp
from .layout import Lanes, Layout, Rows

mm, tmm, transpose, eye_like = Rows.mm, Rows.tmm, Rows.transpose, Rows.eye_like

BLOCK = 64  # matrices in `Lanes` that fit a processor's cache


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


@custom_vjp(1, 2)
def spd_inverse(
    M: Float[Array, "..."], floor: float = 0.0, layout: Layout = Rows
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Inverses and log-determinants of symmetric positive definite matrices.

    `floor` is a known lower bound of the pivots (1 for matrices of the form I + positive semidefinite).
    """
    if layout is Rows and _lanes_are_faster(M):
        return _in_lanes(lambda M: sweep(M, M.shape[0], floor), M)
    return sweep(M, M.shape[layout.column], floor, layout)


def _lanes_are_faster(M):
    """Whether to convert these matrices in `Rows` to `Lanes`."""
    *lead, k, _ = M.shape
    return prod(lead) >= 8 and k <= 24


def _in_lanes(function, M):
    """Apply a function of matrices in `Lanes` to matrices in `Rows`, in blocks that fit a processor's cache."""
    *lead, k, _ = M.shape
    n = prod(lead)

    def convert(M):
        return jax.tree.map(lambda x: jnp.moveaxis(x, -1, 0), function(jnp.moveaxis(M, 0, -1)))

    M = M.reshape(n, k, k)
    if n <= 2 * BLOCK or jax.default_backend() != "cpu":
        found = convert(M)
    else:
        blocks = -(-n // BLOCK)
        M = jnp.concatenate([M, jnp.broadcast_to(jnp.eye(k, dtype=M.dtype), (blocks * BLOCK - n, k, k))])
        found = lax.map(convert, M.reshape(blocks, BLOCK, k, k))
        found = jax.tree.map(lambda x: x.reshape(blocks * BLOCK, *x.shape[2:])[:n], found)
    return jax.tree.map(lambda x: x.reshape(*lead, *x.shape[1:]), found)


def _spd_inverse_fwd(M, floor, layout):
    inv, logdet = spd_inverse(M, floor, layout)
    return (inv, logdet), inv


def _spd_inverse_bwd(floor, layout, inv, cotangents):
    # d(M⁻¹) = -M⁻¹ dM M⁻¹,   d log|M| = tr(M⁻¹ dM)
    inv_bar, logdet_bar = cotangents
    return (layout.expand(logdet_bar) * inv - layout.mm(layout.mm(inv, inv_bar), inv),)


spd_inverse.defvjp(_spd_inverse_fwd, _spd_inverse_bwd)


def sweep(
    W: Float[Array, "..."], pivots: int, floor: float = 0.0, layout: Layout = Lanes
) -> tuple[Float[Array, "..."], Float[Array, "..."]]:
    """Sweep the first `pivots` rows of symmetric matrices; also the log of the pivots' product.

    Sweeping all of M in W = [[M, h], [h', 0]] gives [[M⁻¹, M⁻¹h], [h'M⁻¹, -h'M⁻¹h]] and log|M|: the moments and the
    normaliser of the Gaussian exp(-½z'Mz + h'z).
    """
    down, across = layout.row, layout.column  # a row taken out of W is indexed along `across`
    smallest = _smallest_pivots(W, floor, layout)

    def take(j, W):
        row = _pick(W, j, down)
        p = jnp.maximum(_pick(row, j, across), _pick(smallest, j, across))
        return row, row / jnp.expand_dims(p, across), p

    # The loop carries the next row and its quotient, so that they are computed once: fused into the update, the
    # division would be repeated for every element.
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


def _smallest_pivots(M, floor, layout):
    """The smallest pivots allowed: a pivot below the rounding error of its own diagonal entry is noise."""
    diagonal = jnp.einsum("...ii->...i" if layout is Rows else "...iin->...in", M)
    info = jnp.finfo(M.dtype)
    return jnp.maximum(0.5 * float(info.eps) * jnp.abs(diagonal), max(floor, float(info.tiny) ** 0.5))


# ---------------------------------------------------------------------------------------------------------------------
# factors and Gram matrices


def cholesky_psd(M: Float[Array, "..."], layout: Layout = Rows) -> Float[Array, "..."]:
    """Lower factor L with LL' = M for positive *semi*definite M: a vanishing pivot gives a column of zeros.

    Not differentiable for singular M; the functions that use it have their own derivative rules.
    """
    if layout is Rows:
        return _in_lanes(lambda M: cholesky_psd(M, Lanes), M)
    W, k = M, M.shape[0]
    index = jnp.arange(k)[:, None]
    # a pivot smaller than the rounding error of its own diagonal entry is zero
    threshold = 4 * k * jnp.finfo(M.dtype).eps * jnp.maximum(jnp.einsum("iin->in", W), 0)

    def take(j, W):
        row = _pick(W, j, 0)
        p = _pick(row, j, 0)
        ok = p > _pick(threshold, j, 0)
        return jnp.where((index >= j) & ok, row * lax.rsqrt(jnp.where(ok, p, 1)), 0)

    # the loop carries the next column, as in `sweep`: fused into the update, the root would be taken for every element
    def body(j, carry):
        W, L, column = carry
        W = W - column[:, None] * column[None]
        return W, lax.dynamic_update_index_in_dim(L, column, j, 1), take(jnp.minimum(j + 1, k - 1), W)

    return lax.fori_loop(0, k, body, (W, jnp.zeros_like(W), take(0, W)))[1]


@custom_vjp(1, 2)
def inverse_factor(M: Float[Array, "..."], floor: float = 0.0, layout: Layout = Rows) -> Float[Array, "..."]:
    """Lower triangular Z with Z'Z = M⁻¹, the inverse of the Cholesky factor of M, for positive definite M.

    `floor` is a known lower bound of the pivots. Pivots below it, or below the rounding error of their diagonal entry,
    are raised, so the result is finite.
    """
    if layout is Rows and _lanes_are_faster(M):
        return _in_lanes(lambda M: inverse_factor(M, floor, Lanes), M)
    down, across = layout.row, layout.column  # a row taken out of M is indexed along `across`
    k = M.shape[across]
    index = jnp.arange(k) if layout is Rows else jnp.arange(k)[:, None]
    smallest = _smallest_pivots(M, floor, layout)

    def take(j, W, X):
        row = _pick(W, j, down)
        p = jnp.maximum(_pick(row, j, across), _pick(smallest, j, across))
        return row, jnp.where(index > j, row / jnp.expand_dims(p, across), 0), _pick(X, j, down), p

    # Gaussian elimination on [M | I] turns I into the inverse of the unit lower factor
    def body(j, carry):
        W, X, row, multiplier, x, p, pivots = carry
        multiplier = jnp.expand_dims(multiplier, across)
        W = W - multiplier * jnp.expand_dims(row, down)
        X = X - multiplier * jnp.expand_dims(x, down)
        pivots = lax.dynamic_update_index_in_dim(pivots, p, j, across)
        return W, X, *take(jnp.minimum(j + 1, k - 1), W, X), pivots

    X = jnp.broadcast_to(layout.eye_like(M), M.shape)
    _, X, *_, pivots = lax.fori_loop(0, k, body, (M, X, *take(0, M, X), jnp.zeros_like(smallest)))
    return X * jnp.expand_dims(lax.rsqrt(pivots), across)


def _inverse_factor_fwd(M, floor, layout):
    Z = inverse_factor(M, floor, layout)
    return Z, Z


def _inverse_factor_bwd(floor, layout, Z, Z_bar):
    # With U = Z⁻¹: dU = U tril½(Z dM Z'), dZ = -Z dU Z = -tril½(Z dM Z') Z, where tril½ is the lower triangle with half
    # the diagonal. So M̄ = -Z' tril½(Z̄Z') Z, symmetrised.
    mm, t = layout.mm, layout.transpose
    k = Z.shape[layout.column]
    half = jnp.tril(jnp.ones((k, k), Z.dtype)) - 0.5 * jnp.eye(k, dtype=Z.dtype)
    half = half if layout is Rows else half[..., None]
    return (-sym(layout.tmm(Z, mm(half * mm(Z_bar, t(Z)), Z)), layout),)


inverse_factor.defvjp(_inverse_factor_fwd, _inverse_factor_bwd)


def log_determinant(Z: Float[Array, "..."], layout: Layout = Rows) -> Float[Array, "..."]:
    """log|M| from the inverse Z of its Cholesky factor."""
    return -2 * jnp.sum(jnp.log(layout.diagonal(Z)), -1)


def gram(Z: Float[Array, "..."], layout: Layout = Rows) -> Float[Array, "..."]:
    """Z'Z, symmetric and positive definite also after rounding.

    Each diagonal entry is raised by the rounding error of the product, in proportion to the entry.
    """
    k = Z.shape[layout.column]
    V = sym(layout.tmm(Z, Z), layout)
    return V if k == 1 else V * (1 + (4 + k / 4) * float(jnp.finfo(Z.dtype).eps) * layout.eye_like(V))


@custom_vjp(1)
def spd_covariance(M: Float[Array, "..."], layout: Layout = Rows) -> Float[Array, "..."]:
    """Covariances M⁻¹ of precisions M ≥ I, symmetric and positive definite also after rounding."""
    return gram(inverse_factor(M, 1.0, layout), layout)


def _spd_covariance_fwd(M, layout):
    V = spd_covariance(M, layout)
    return V, V


def _spd_covariance_bwd(layout, V, V_bar):
    return (-layout.mm(layout.mm(V, V_bar), V),)


spd_covariance.defvjp(_spd_covariance_fwd, _spd_covariance_bwd)


@custom_vjp()
def posterior_covariance(X: Float[Array, "*n k k"], Y: Float[Array, "*n k k"]) -> Float[Array, "*n k k"]:
    """(X⁻¹ + Y)⁻¹ for positive semidefinite X and Y, also singular: covariance X given an observation of precision Y.

    With X = LL' this is L(I + L'YL)⁻¹L', a Gram matrix: symmetric and positive semidefinite also after rounding.
    """
    L = cholesky_psd(X)
    Z = inverse_factor(eye_like(X) + sym(mm(tmm(L, Y), L)), 1.0)
    return gram(mm(Z, transpose(L)))


def _posterior_covariance_fwd(X, Y):
    S = posterior_covariance(X, Y)
    return S, (S, Y)


def _posterior_covariance_bwd(saved, S_bar):
    # dS = R dX R' - S dY S  with  R = (I + XY)⁻¹ = I - SY
    S, Y = saved
    R, S_bar = eye_like(S) - mm(S, Y), sym(S_bar)
    return mm(tmm(R, S_bar), R), -mm(mm(S, S_bar), S)


posterior_covariance.defvjp(_posterior_covariance_fwd, _posterior_covariance_bwd)
