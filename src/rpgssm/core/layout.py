"""Two ways to lay out very many small matrices in memory, with the same operations on both.

`Rows` is the usual one: matrices `(..., k, k)`, vectors `(..., k)`; products are batched matrix products. Best for few
matrices, or large ones.

`Lanes` puts the matrices side by side: `(..., k, k, n)` and vectors `(..., k, n)`, with the n matrices along the last
axis. A product is then a short sum of elementwise operations on rows of n numbers, which compilers vectorise: on a CPU
several times as fast as a batched product for 8×8 matrices, and still faster for 16×16. From there on `Rows` wins.
"""

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
        terms = [a[..., :, j, None, :] * b[..., None, j, :, :] for j in range(a.shape[-2])]
        return sum(terms[1:], terms[0])

    @staticmethod
    def transpose(a: Float[Array, "*a i j n"]) -> Float[Array, "*a j i n"]:
        return jnp.swapaxes(a, -3, -2)

    @staticmethod
    def apply(a: Float[Array, "*a i j n"], x: Float[Array, "*b j n"]) -> Float[Array, "*c i n"]:
        terms = [a[..., :, j, :] * x[..., None, j, :] for j in range(a.shape[-2])]
        return sum(terms[1:], terms[0])

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


Layout = type[Rows] | type[Lanes]


def choose_layout(matrices: int, latent: int) -> Layout:
    """The faster one for so many matrices side by side."""
    return Lanes if matrices >= 8 and latent <= 16 else Rows


def to_rows(layout: Layout, a: Float[Array, "..."]) -> Float[Array, "*t n k j"]:
    """Matrices in the given layout as (..., n, k, j)."""
    return a if layout is Rows else jnp.moveaxis(a, -1, -3)
