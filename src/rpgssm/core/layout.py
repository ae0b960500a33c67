"""Two memory layouts for many small matrices, with the same operations.

`Rows` is the usual layout: matrices `(..., k, k)`, vectors `(..., k)`, and batched matrix products. It is best for few
or large matrices.

`Lanes` has the n matrices along the last axis: `(..., k, k, n)`, and vectors `(..., k, n)`. A product is a short sum of
elementwise operations on rows of n numbers, which compilers vectorise. On a CPU this is several times faster than a
batched product for 8×8 matrices; from about 16×16 on `Rows` is faster.
"""

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .compiling import custom_vjp

_HIGHEST = lax.Precision.HIGHEST  # TF32 on recent GPUs would break covariances


class Rows:
    """Matrices (..., k, k), vectors (..., k)."""

    row, column = -2, -1  # axes of a matrix

    @staticmethod
    def mm(a: Float[Array, "*a i j"], b: Float[Array, "*b j k"]) -> Float[Array, "*c i k"]:
        """Matrix product at the highest precision, leading axes broadcast."""
        return jnp.matmul(a, b, precision=_HIGHEST)

    mm_now = mm  # see Lanes

    @staticmethod
    def tmm(a: Float[Array, "*a j i"], b: Float[Array, "*b j k"]) -> Float[Array, "*c i k"]:
        """a'b. The barrier makes XLA store the transposed a: without it the product is ten times slower on a CPU."""
        return jnp.matmul(lax.optimization_barrier(jnp.swapaxes(a, -1, -2)), b, precision=_HIGHEST)

    @staticmethod
    def transpose(a: Float[Array, "*a i j"]) -> Float[Array, "*a j i"]:
        return jnp.swapaxes(a, -1, -2)

    @staticmethod
    def apply(a: Float[Array, "*a c i j"], x: Float[Array, "*b n j"]) -> Float[Array, "*c n i"]:
        """Matrices times vectors: one matrix per vector, or one product for all n vectors (c = 1)."""
        if a.shape[-3] == 1:
            return jnp.matmul(x, jnp.swapaxes(a[..., 0, :, :], -1, -2), precision=_HIGHEST)
        return jnp.einsum("...ij,...j->...i", a, x, precision=_HIGHEST)

    @staticmethod
    def outer(x: Float[Array, "*b n i"], y: Float[Array, "*b n j"], matrices: int) -> Float[Array, "*b c i j"]:
        """xy' of each vector, or their sum over n if `matrices` is 1: the derivative of `apply`."""
        if matrices == 1:
            return jnp.matmul(jnp.swapaxes(x, -1, -2), y, precision=_HIGHEST)[..., None, :, :]
        return x[..., :, None] * y[..., None, :]

    @staticmethod
    def inner(x: Float[Array, "*b k"], y: Float[Array, "*c k"]) -> Float[Array, "*d"]:
        return jnp.sum(x * y, -1)

    @staticmethod
    def eye_like(a: Float[Array, "*a k k"]) -> Float[Array, "*b k k"]:
        """The identity with as many axes as `a`, the leading ones of length 1."""
        k = a.shape[-1]
        return jnp.eye(k, dtype=a.dtype).reshape((1,) * (a.ndim - 2) + (k, k))

    @staticmethod
    def diagonal(a: Float[Array, "*a k k"]) -> Float[Array, "*a k"]:
        return jnp.diagonal(a, axis1=-2, axis2=-1)

    @staticmethod
    def expand(x: Float[Array, "*a"]) -> Float[Array, "*a 1 1"]:
        """Add axes to one number per matrix, so that it multiplies matrices."""
        return x[..., None, None]


# JAX's derivatives of sums of slices are slow scatters and reductions: the rules below use products instead.


def sum_to(x: Float[Array, "..."], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Sum over the axes along which an operand of this shape was broadcast: the transpose of broadcasting."""
    x = jnp.sum(x, tuple(range(x.ndim - len(shape))))
    axes = tuple(i for i, (m, n) in enumerate(zip(x.shape, shape, strict=True)) if n == 1 and m > 1)
    return jnp.sum(x, axes, keepdims=True) if axes else x


@custom_vjp()
def _lane_product(a: Float[Array, "*a i j n"], b: Float[Array, "*b j k n"]) -> Float[Array, "*c i k n"]:
    terms = [a[..., :, j, None, :] * b[..., None, j, :, :] for j in range(a.shape[-2])]
    return sum(terms[1:], terms[0])


def _lane_product_bwd(saved, c_bar):
    a, b = saved
    a_bar, b_bar = _lane_product(c_bar, jnp.swapaxes(b, -3, -2)), _lane_product(jnp.swapaxes(a, -3, -2), c_bar)
    return sum_to(a_bar, a.shape), sum_to(b_bar, b.shape)


_lane_product.defvjp(lambda a, b: (_lane_product(a, b), (a, b)), _lane_product_bwd)


@custom_vjp()
def _lane_apply(a: Float[Array, "*a i j m"], x: Float[Array, "*b j n"]) -> Float[Array, "*c i n"]:
    """Matrices times vectors: one matrix per vector, or one for all (m = 1)."""
    terms = [a[..., :, j, :] * x[..., None, j, :] for j in range(a.shape[-2])]
    return sum(terms[1:], terms[0])


def _lane_apply_bwd(saved, y_bar):
    a, x = saved
    a_bar, x_bar = y_bar[..., :, None, :] * x[..., None, :, :], _lane_apply(jnp.swapaxes(a, -3, -2), y_bar)
    return sum_to(a_bar, a.shape), sum_to(x_bar, x.shape)


_lane_apply.defvjp(lambda a, x: (_lane_apply(a, x), (a, x)), _lane_apply_bwd)


class Lanes:
    """Matrices (..., k, k, n), vectors (..., k, n)."""

    row, column = -3, -2
    mm = staticmethod(_lane_product)
    apply = staticmethod(_lane_apply)

    @staticmethod
    def mm_now(a: Float[Array, "*a i j n"], b: Float[Array, "*b j k n"]) -> Float[Array, "*c i k n"]:
        """`mm`, before another product in the same step.

        XLA fuses elementwise operations, and would repeat the first product for every term of the second. It does not
        fuse across a conditional. (A product with an infinite first entry becomes NaN.)
        """
        shape = (*jnp.broadcast_shapes(a.shape[:-3], b.shape[:-3]), a.shape[-3], *b.shape[-2:])
        broken = jnp.isposinf(a.ravel()[0])
        return lax.cond(broken, lambda a, b: jnp.full(shape, jnp.nan, a.dtype), _lane_product, a, b)

    @staticmethod
    def tmm(a: Float[Array, "*a j i n"], b: Float[Array, "*b j k n"]) -> Float[Array, "*c i k n"]:
        """a'b, before another product in the same step like `mm_now`."""
        return Lanes.mm_now(jnp.swapaxes(a, -3, -2), b)

    @staticmethod
    def transpose(a: Float[Array, "*a i j n"]) -> Float[Array, "*a j i n"]:
        return jnp.swapaxes(a, -3, -2)

    @staticmethod
    def outer(x: Float[Array, "*b i n"], y: Float[Array, "*b j n"], matrices: int) -> Float[Array, "*b i j n"]:
        del matrices  # always one per vector
        return x[..., :, None, :] * y[..., None, :, :]

    @staticmethod
    def inner(x: Float[Array, "*b k n"], y: Float[Array, "*c k n"]) -> Float[Array, "*d n"]:
        return jnp.sum(x * y, -2)

    @staticmethod
    def eye_like(a: Float[Array, "*a k k n"]) -> Float[Array, "*b k k 1"]:
        k = a.shape[-2]
        return jnp.eye(k, dtype=a.dtype).reshape((1,) * (a.ndim - 3) + (k, k, 1))

    @staticmethod
    def diagonal(a: Float[Array, "*a k k n"]) -> Float[Array, "*a n k"]:
        return jnp.diagonal(a, axis1=-3, axis2=-2)

    @staticmethod
    def expand(x: Float[Array, "*a n"]) -> Float[Array, "*a 1 1 n"]:
        return x[..., None, None, :]


Layout = type[Rows] | type[Lanes]


def choose_layout(matrices: int, latent: int) -> Layout:
    """The faster layout for this number of matrices."""
    return Lanes if matrices >= 8 and latent <= 12 else Rows


def to_rows(layout: Layout, a: Float[Array, "..."]) -> Float[Array, "*t n k j"]:
    """Convert matrices from this layout to (..., n, k, j)."""
    return a if layout is Rows else jnp.moveaxis(a, -1, -3)
