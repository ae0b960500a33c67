"""The image decoder of the published comparisons.

A dense layer gives an image of a quarter of the sides with 32 channels. Transposed 3×3 convolutions with 64 channels
(stride 2), 32 (stride 2) and those of the frame (stride 1) follow; the result is cut to size.

About ten times the arithmetic of the library's own `ConvDecoder`. XLA's transposed convolutions are slow on CPU. There
each is a matrix product, which gives every pixel's share in the k×k pixels around it, and a `fold`, the sum of shares.
"""

from math import prod

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray

from rpgssm.core.compiling import custom_vjp
from rpgssm.nn.convolution import Method, Pair, fold, map_frames, patches, uses_patches
from rpgssm.nn.decoder import Decoder
from rpgssm.nn.encoders import image_shape
from rpgssm.nn.layers import Dense, Standardise, split, variance_scaling, zeros

CHANNELS, STRIDES = (32, 64, 32), (2, 2, 1)


class PaperDecoder(Decoder):
    """Frames are (height, width) or (height, width, channels)."""

    standardise: Standardise
    tenth_log_variance: Float[Array, ""]
    start: Dense
    kernels: tuple[Float[Array, "3 3 i o"], ...]
    biases: tuple[Float[Array, " o"], ...]
    frame_shape: tuple[int, ...] = eqx.field(static=True)
    small_shape: tuple[int, int, int] = eqx.field(static=True)
    method: Method = eqx.field(static=True)

    def __init__(
        self,
        latent_dim: int,
        frame_shape: tuple[int, ...],
        *,
        key: PRNGKeyArray,
        shift: ArrayLike = 0.0,
        scale: ArrayLike = 1.0,
        method: Method = "auto",
        dtype=jnp.float32,
    ):
        h, w, c = image_shape(frame_shape)
        first, *keys = split(key, 4)
        sizes = [*CHANNELS, c]
        self.standardise = Standardise(frame_shape, shift, scale, dtype)
        self.tenth_log_variance = zeros((), dtype)
        self.small_shape = (-(-h // 4), -(-w // 4), CHANNELS[0])
        self.start = Dense(latent_dim, prod(self.small_shape), key=first, dtype=dtype)
        # of the 9 weights of a kernel a pixel of the larger image meets 9 / stride² on average
        self.kernels = tuple(
            variance_scaling(k, (3, 3, i, o), gain * stride**2, dtype)
            for k, i, o, stride, gain in zip(keys, sizes[:-1], sizes[1:], STRIDES, (2.0, 2.0, 1.0), strict=True)
        )
        self.biases = tuple(zeros((o,), dtype) for o in sizes[1:])
        self.frame_shape = tuple(frame_shape)
        self.method = method

    def network(self, latents: Float[Array, "n k"]) -> Float[Array, "n *frame"]:
        if not uses_patches(self.method):
            return self._images(latents)
        (h, w, _), shares, side = self.small_shape, [], 1
        for kernel, stride in zip(self.kernels, STRIDES, strict=True):
            shares.append(side**2 * h * w * 9 * kernel.shape[-1] * kernel.dtype.itemsize)
            side = side * stride
        return map_frames(self._images, latents, max(shares))

    def _images(self, latents):
        x = self.start(latents).reshape(-1, *self.small_shape)
        for kernel, bias, stride in zip(self.kernels, self.biases, STRIDES, strict=True):
            x = transposed_convolution(jax.nn.relu(x), kernel, stride, self.method) + bias[None, None, None]
        h, w, _ = image_shape(self.frame_shape)
        return x[:, :h, :w].reshape(-1, *self.frame_shape)


def transposed_convolution(
    x: Float[Array, "n h w i"], kernel: Float[Array, "kh kw i o"], stride: int, method: Method = "auto"
) -> Float[Array, "n sh sw o"]:
    """A transposed convolution with "SAME" padding, to `stride` times the size; kernels as in `lax.conv_transpose`."""
    if not uses_patches(method):
        return lax.conv_transpose(x, kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))
    kh, kw, i, o = kernel.shape
    matrix = kernel[::-1, ::-1].transpose(2, 1, 0, 3).reshape(i, kw * kh * o)
    return _spread(x @ matrix, (stride * x.shape[1], stride * x.shape[2], o), (kh, kw), (stride, stride))


@custom_vjp(1, 2, 3)
def _spread(shares: Float[Array, "n h w p"], frame: tuple[int, ...], kernel: Pair, stride: Pair):
    return fold(shares, frame, kernel, stride, "SAME")


def _spread_forward(shares, frame, kernel, stride):
    return _spread(shares, frame, kernel, stride), None


def _spread_backward(frame, kernel, stride, _, cotangent):
    return (patches(cotangent, kernel, stride, "SAME"),)


_spread.defvjp(_spread_forward, _spread_backward)
