"""Small symmetric matrices, many at a time.

The library lives on very many K×K matrices with K between 1 and a few dozen. One LAPACK call per matrix costs more than
the arithmetic, so the kernels here put the *matrices* side by side instead: an array `(K, K, N)` holds N matrices with
the matrix index last, and every operation is a short sequence of elementwise operations on rows of N numbers, which
compilers vectorise well. Everything public takes and returns the usual `(..., K, K)`.

Two ways to invert are offered, because they fail differently in float32:

* `spd_inverse` sweeps (Gauss-Jordan on a symmetric matrix): fastest, and the log-determinant falls out of the pivots.
* `spd_covariance` goes through a Cholesky factor and returns a Gram matrix, which cannot come out indefinite.

Both take a lower bound `floor` for the pivots. In this library nearly every matrix to invert is `I + (something
positive semidefinite)`; all pivots of such a matrix are at least 1 in exact arithmetic, so clamping them at 1 changes
nothing but rounding errors, and makes a NaN impossible.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

_HIGHEST = lax.Precision.HIGHEST  # TF32 on recent GPUs would break covariances


def mm(a: Float[Array, "*a i j"], b: Float[Array, "*b j k"]) -> Float[Array, "*c i k"]:
    """Matrix product at the highest precision, leading axes broadcast."""
    return jnp.matmul(a, b, precision=_HIGHEST)


def mv(a: Float[Array, "*a i j"], x: Float[Array, "*b j"]) -> Float[Array, "*c i"]:
    """Matrix times vector at the highest precision, leading axes broadcast."""
    return jnp.einsum("...ij,...j->...i", a, x, precision=_HIGHEST)


def transpose(a: Float[Array, "*a i j"]) -> Float[Array, "*a j i"]:
    return jnp.swapaxes(a, -1, -2)


def sym(a: Float[Array, "*a k k"]) -> Float[Array, "*a k k"]:
    """The symmetric part."""
    return 0.5 * (a + transpose(a))


def eye_like(a: Float[Array, "*a k k"]) -> Float[Array, "*b k k"]:
    """The identity, with as many axes as `a` (all leading ones of length 1)."""
    k = a.shape[-1]
    return jnp.eye(k, dtype=a.dtype).reshape((1,) * (a.ndim - 2) + (k, k))


def _lanes(a: Float[Array, "n i j"]) -> Float[Array, "i j n"]:
    return jnp.moveaxis(a, 0, -1)


# ---------------------------------------------------------------------------------------------------------------------
# inverse and log-determinant by sweeping


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def spd_inverse(M: Float[Array, "*n k k"], floor: float = 0.0) -> tuple[Float[Array, "*n k k"], Float[Array, "*n"]]:
    """Inverse and log-determinant of symmetric positive definite matrices.

    `floor` is a lower bound for the pivots known in advance (1 for matrices of the form I + positive semidefinite).
    """
    *lead, k, _ = M.shape
    inv, logdet = sweep(_lanes(M.reshape(-1, k, k)), k, floor)
    return jnp.moveaxis(inv, -1, 0).reshape(*lead, k, k), logdet.reshape(lead)


@spd_inverse.defjvp
def _spd_inverse_jvp(floor, primals, tangents):
    (M,), (dM,) = primals, tangents
    inv, logdet = spd_inverse(M, floor)
    # d(M⁻¹) = -M⁻¹ dM M⁻¹,   d log|M| = tr(M⁻¹ dM)
    X = mm(inv, dM)
    return (inv, logdet), (-mm(X, inv), jnp.trace(X, axis1=-2, axis2=-1))


def sweep(
    W: Float[Array, "m m n"], pivots: int, floor: float = 0.0
) -> tuple[Float[Array, "m m n"], Float[Array, " n"]]:
    """Sweep the first `pivots` rows of N symmetric matrices laid side by side; also the log of the pivots' product.

    With W = [[M, h], [h', 0]] and all of M swept the result is [[M⁻¹, M⁻¹h], [h'M⁻¹, -h'M⁻¹h]] and log|M|: everything
    there is to know about the Gaussian exp(-½z'Mz + h'z).
    """
    m, n = W.shape[0], W.shape[-1]
    # no pivot is smaller than the rounding error of its own diagonal entry: what is smaller is noise
    least = jnp.maximum(floor, 0.5 * float(jnp.finfo(W.dtype).eps) * jnp.abs(jnp.einsum("iin->in", W)))
    least = jnp.maximum(least, float(jnp.finfo(W.dtype).tiny) ** 0.5)
    index = jnp.arange(m)[:, None]

    def take(j, W):
        row = lax.dynamic_index_in_dim(W, j, 0, keepdims=False)
        p = jnp.maximum(*(lax.dynamic_index_in_dim(x, j, 0, keepdims=False) for x in (row, least)))
        return row, row / p, p

    # The row and its quotient are carried from one turn to the next so that they are computed once; fused into the
    # update, the division would be repeated for every element.
    def body(j, carry):
        W, row, quotient, p, logdet = carry
        # the pivot's row and column: row/p; the pivot itself: -1/p; the rest: W - row ⊗ row/p
        W = W - row[:, None] * quotient[None]
        edge = lax.dynamic_update_index_in_dim(quotient, -1 / p, j, 0)
        W = lax.dynamic_update_index_in_dim(W, edge, j, 0)
        W = lax.dynamic_update_index_in_dim(W, edge, j, 1)
        return W, *take(jnp.minimum(j + 1, pivots - 1), W), logdet + jnp.log(p)

    carry = (W, *take(0, W), jnp.zeros((n,), W.dtype))
    W, _, _, _, logdet = lax.fori_loop(0, pivots, body, carry)
    swept = (index < pivots) & (index.T < pivots)
    return jnp.where(swept[..., None], -W, W), logdet


# ---------------------------------------------------------------------------------------------------------------------
# factors and Gram matrices


def cholesky_psd(M: Float[Array, "*n k k"]) -> Float[Array, "*n k k"]:
    """Lower factor L with LL' = M for positive *semi*definite M: a vanishing pivot gives a column of zeros.

    Not differentiable where M is singular; used inside functions that have their own derivative rules.
    """
    *lead, k, _ = M.shape
    W = _lanes(M.reshape(-1, k, k))
    index = jnp.arange(k)[:, None]
    # a pivot smaller than the rounding error of its own diagonal entry is zero
    threshold = 4 * k * jnp.finfo(M.dtype).eps * jnp.maximum(jnp.einsum("iin->in", W), 0)

    def body(j, carry):
        W, L = carry
        row = lax.dynamic_index_in_dim(W, j, 0, keepdims=False)
        p = lax.dynamic_index_in_dim(row, j, 0, keepdims=False)
        ok = p > lax.dynamic_index_in_dim(threshold, j, 0, keepdims=False)
        column = jnp.where((index >= j) & ok, row * lax.rsqrt(jnp.where(ok, p, 1)), 0)
        return W - column[:, None] * column[None], lax.dynamic_update_index_in_dim(L, column, j, 1)

    _, L = lax.fori_loop(0, k, body, (W, jnp.zeros_like(W)))
    return jnp.moveaxis(L, -1, 0).reshape(*lead, k, k)


@partial(jax.custom_jvp, nondiff_argnums=(1,))
def inverse_factor(M: Float[Array, "*n k k"], floor: float = 0.0) -> Float[Array, "*n k k"]:
    """Lower triangular Z with Z'Z = M⁻¹, the inverse of the Cholesky factor of M, for positive definite M.

    `floor` is a lower bound for the pivots known in advance. No pivot is taken smaller than that or than the rounding
    error of its diagonal entry, so the result is finite whatever rounding has done to M.
    """
    *lead, k, _ = M.shape
    W = _lanes(M.reshape(-1, k, k))
    index = jnp.arange(k)[:, None]
    least = jnp.maximum(floor, 0.5 * jnp.finfo(M.dtype).eps * jnp.abs(jnp.einsum("iin->in", W)))
    least = jnp.maximum(least, float(jnp.finfo(M.dtype).tiny) ** 0.5)

    def take(j, W, X):
        pick = partial(lax.dynamic_index_in_dim, index=j, axis=0, keepdims=False)
        row = pick(W)
        p = jnp.maximum(pick(row), pick(least))
        return row, jnp.where(index > j, row / p, 0), pick(X), p

    # Gaussian elimination on [M | I]: what becomes of I is the inverse of the unit lower factor
    def body(j, carry):
        W, X, row, multiplier, x, p, pivots = carry
        W = W - multiplier[:, None] * row[None]
        X = X - multiplier[:, None] * x[None]
        pivots = lax.dynamic_update_index_in_dim(pivots, p, j, 0)
        return W, X, *take(jnp.minimum(j + 1, k - 1), W, X), pivots

    X = jnp.broadcast_to(jnp.eye(k, dtype=M.dtype)[..., None], W.shape)
    _, X, *_, pivots = lax.fori_loop(0, k, body, (W, X, *take(0, W, X), jnp.zeros_like(W[0])))
    return jnp.moveaxis(X * lax.rsqrt(pivots)[:, None], -1, 0).reshape(*lead, k, k)


@inverse_factor.defjvp
def _inverse_factor_jvp(floor, primals, tangents):
    (M,), (dM,) = primals, tangents
    Z = inverse_factor(M, floor)
    # with U = Z⁻¹: dU = U tril½(Z dM Z'), and dZ = -Z dU Z; tril½ is the lower triangle with half the diagonal
    half = jnp.tril(jnp.ones_like(Z)) - 0.5 * eye_like(Z)
    return Z, -mm(half * mm(mm(Z, dM), transpose(Z)), Z)


def gram(Z: Float[Array, "*n j k"]) -> Float[Array, "*n k k"]:
    """Z'Z, symmetric and positive definite also after rounding.

    The diagonal is raised by the rounding error of the product, in proportion to each entry.
    """
    k = Z.shape[-1]
    V = sym(mm(transpose(Z), Z))
    return V if k == 1 else V * (1 + (4 + k / 4) * float(jnp.finfo(Z.dtype).eps) * eye_like(V))


@jax.custom_jvp
def spd_covariance(M: Float[Array, "*n k k"]) -> Float[Array, "*n k k"]:
    """Covariances M⁻¹ of precisions M ≥ I, symmetric and positive definite also after rounding."""
    return gram(inverse_factor(M, 1.0))


@spd_covariance.defjvp
def _spd_covariance_jvp(primals, tangents):
    (M,), (dM,) = primals, tangents
    V = spd_covariance(M)
    return V, -mm(mm(V, dM), V)


@jax.custom_jvp
def shrink(X: Float[Array, "*n k k"], Y: Float[Array, "*n k k"]) -> Float[Array, "*n k k"]:
    """(X⁻¹ + Y)⁻¹ for positive semidefinite X and Y, singular or not: covariance X after an observation of precision Y.

    With X = LL' this is L(I + L'YL)⁻¹L', a Gram matrix: symmetric and positive semidefinite also after rounding.
    """
    L = cholesky_psd(X)
    Z = inverse_factor(eye_like(X) + sym(mm(mm(transpose(L), Y), L)), 1.0)
    return gram(mm(Z, transpose(L)))


@shrink.defjvp
def _shrink_jvp(primals, tangents):
    (X, Y), (dX, dY) = primals, tangents
    S = shrink(X, Y)
    # dS = R dX R' - S dY S  with  R = (I + XY)⁻¹ = I - SY
    R = eye_like(S) - mm(S, Y)
    return S, sym(mm(mm(R, dX), transpose(R)) - mm(mm(S, dY), S))
