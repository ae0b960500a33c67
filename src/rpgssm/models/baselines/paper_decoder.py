"""The image decoder of the published comparisons: a dense layer to a quarter of the sides with 32 channels, then
transposed 3×3 convolutions with 64 channels (stride 2), 32 (stride 2) and those of the frame (stride 1), cut to size.

About ten times the arithmetic of the library's own `ConvDecoder`.
"""

from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from rpgssm.models.decoder import Decoder
from rpgssm.models.encoders import image_shape
from rpgssm.models.layers import Dense, Standardise, split, variance_scaling, zeros

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

    def __init__(
        self,
        latent_dim: int,
        frame_shape: tuple[int, ...],
        *,
        key: PRNGKeyArray,
        shift: Any = 0.0,
        scale: Any = 1.0,
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

    def network(self, latents: Float[Array, "n k"]) -> Float[Array, "n *frame"]:
        x = self.start(latents).reshape(-1, *self.small_shape)
        for kernel, bias, stride in zip(self.kernels, self.biases, STRIDES, strict=True):
            x = lax.conv_transpose(
                jax.nn.relu(x), kernel, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")
            )
            x = x + bias
        h, w, _ = image_shape(self.frame_shape)
        return x[:, :h, :w].reshape(-1, *self.frame_shape)
