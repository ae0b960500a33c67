"""Two ways to lay out very many small matrices in memory, with the same operations on both.

`Rows` is the usual one: matrices `(..., k, k)`, vectors `(..., k)`; products are batched matrix products. Best for few
matrices, or large ones.

`Lanes` puts the matrices side by side: `(..., k, k, n)` and vectors `(..., k, n)`, with the n matrices along the last
axis. A product is then a short sum of elementwise operations on rows of n numbers, which compilers vectorise: on a CPU
several times as fast as a batched product for 8×8 matrices; from about 16×16 on `Rows` wins.
"""

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

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
        """a'b. If XLA is not kept from it, it does without the transposed a, and is ten times slower on a CPU."""
        return jnp.matmul(lax.optimization_barrier(jnp.swapaxes(a, -1, -2)), b, precision=_HIGHEST)

    @staticmethod
    def transpose(a: Float[Array, "*a i j"]) -> Float[Array, "*a j i"]:
        return jnp.swapaxes(a, -1, -2)

    @staticmethod
    def apply(a: Float[Array, "*a c i j"], x: Float[Array, "*b n j"]) -> Float[Array, "*c n i"]:
        """Matrices times vectors, one matrix per vector or (c = 1) one for all n: then a single product."""
        if a.shape[-3] == 1:
            return jnp.matmul(x, jnp.swapaxes(a[..., 0, :, :], -1, -2), precision=_HIGHEST)
        return jnp.einsum("...ij,...j->...i", a, x, precision=_HIGHEST)

    @staticmethod
    def outer(x: Float[Array, "*b n i"], y: Float[Array, "*b n j"], matrices: int) -> Float[Array, "*b c i j"]:
        """xy' for each, or summed over all n if `matrices` is 1: the derivative of `apply`."""
        if matrices == 1:
            return jnp.matmul(jnp.swapaxes(x, -1, -2), y, precision=_HIGHEST)[..., None, :, :]
        return x[..., :, None] * y[..., None, :]

    @staticmethod
    def inner(x: Float[Array, "*b k"], y: Float[Array, "*c k"]) -> Float[Array, "*d"]:
        return jnp.sum(x * y, -1)

    @staticmethod
    def eye_like(a: Float[Array, "*a k k"]) -> Float[Array, "*b k k"]:
        """The identity, with as many axes as `a` (all but two of length 1)."""
        k = a.shape[-1]
        return jnp.eye(k, dtype=a.dtype).reshape((1,) * (a.ndim - 2) + (k, k))

    @staticmethod
    def diagonal(a: Float[Array, "*a k k"]) -> Float[Array, "*a k"]:
        return jnp.diagonal(a, axis1=-2, axis2=-1)

    @staticmethod
    def expand(x: Float[Array, "*a"]) -> Float[Array, "*a 1 1"]:
        """One number per matrix, to multiply matrices with."""
        return x[..., None, None]


class Lanes:
    """Matrices (..., k, k, n), vectors (..., k, n)."""

    row, column = -3, -2

    @staticmethod
    def mm(a: Float[Array, "*a i j n"], b: Float[Array, "*b j k n"]) -> Float[Array, "*c i k n"]:
        return _lane_product(a, b)

    @staticmethod
    def mm_now(a: Float[Array, "*a i j n"], b: Float[Array, "*b j k n"]) -> Float[Array, "*c i k n"]:
        """`mm` for use inside a step whose next operation is another product.

        XLA fuses elementwise operations, and would compute the first product again for every term of the second. A
        conditional is a border that it does not fuse across. (A product with an infinite first entry becomes NaN.)
        """
        shape = (*jnp.broadcast_shapes(a.shape[:-3], b.shape[:-3]), a.shape[-3], *b.shape[-2:])
        broken = jnp.isposinf(a.ravel()[0])
        return lax.cond(broken, lambda a, b: jnp.full(shape, jnp.nan, a.dtype), _lane_product, a, b)

    @staticmethod
    def tmm(a: Float[Array, "*a j i n"], b: Float[Array, "*b j k n"]) -> Float[Array, "*c i k n"]:
        """a'b, for use inside a step like `mm_now`."""
        return Lanes.mm_now(jnp.swapaxes(a, -3, -2), b)

    @staticmethod
    def transpose(a: Float[Array, "*a i j n"]) -> Float[Array, "*a j i n"]:
        return jnp.swapaxes(a, -3, -2)

    @staticmethod
    def apply(a: Float[Array, "*a i j m"], x: Float[Array, "*b j n"]) -> Float[Array, "*c i n"]:
        """Matrices times vectors, one matrix per vector or (m = 1) one for all."""
        return _lane_apply(a, x)

    @staticmethod
    def outer(x: Float[Array, "*b i n"], y: Float[Array, "*b j n"], matrices: int) -> Float[Array, "*b i j n"]:
        del matrices  # one per vector, always
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


# Sums of slices have derivatives made of scatters and reductions, which are slow: they are given as products instead.


def sum_to(x: Float[Array, "..."], shape: tuple[int, ...]) -> Float[Array, "..."]:
    """Sum over the axes along which an operand of the given shape was repeated: the transpose of broadcasting."""
    x = jnp.sum(x, tuple(range(x.ndim - len(shape))))
    axes = tuple(i for i, (m, n) in enumerate(zip(x.shape, shape, strict=True)) if n == 1 and m > 1)
    return jnp.sum(x, axes, keepdims=True) if axes else x


@jax.custom_vjp
def _lane_product(a, b):
    terms = [a[..., :, j, None, :] * b[..., None, j, :, :] for j in range(a.shape[-2])]
    return sum(terms[1:], terms[0])


def _lane_product_bwd(saved, c_bar):
    a, b = saved
    a_bar, b_bar = _lane_product(c_bar, jnp.swapaxes(b, -3, -2)), _lane_product(jnp.swapaxes(a, -3, -2), c_bar)
    return sum_to(a_bar, a.shape), sum_to(b_bar, b.shape)


_lane_product.defvjp(lambda a, b: (_lane_product(a, b), (a, b)), _lane_product_bwd)


@jax.custom_vjp
def _lane_apply(a, x):
    terms = [a[..., :, j, :] * x[..., None, j, :] for j in range(a.shape[-2])]
    return sum(terms[1:], terms[0])


def _lane_apply_bwd(saved, y_bar):
    a, x = saved
    a_bar, x_bar = y_bar[..., :, None, :] * x[..., None, :, :], _lane_apply(jnp.swapaxes(a, -3, -2), y_bar)
    return sum_to(a_bar, a.shape), sum_to(x_bar, x.shape)


_lane_apply.defvjp(lambda a, x: (_lane_apply(a, x), (a, x)), _lane_apply_bwd)


Layout = type[Rows] | type[Lanes]


def choose_layout(matrices: int, latent: int) -> Layout:
    """The faster one for so many matrices side by side."""
    return Lanes if matrices >= 8 and latent <= 12 else Rows


def to_rows(layout: Layout, a: Float[Array, "..."]) -> Float[Array, "*t n k j"]:
    """Matrices in the given layout as (..., n, k, j)."""
    return a if layout is Rows else jnp.moveaxis(a, -1, -3)
