"""Layers of encoders, heads and decoders.

They work on a batch of rows, `(n, features)`, rather than on one row under `vmap`: one matrix product for all frames.
"""

from collections.abc import Callable
from functools import partial
from math import prod
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from rpgssm.core.checks import is_concrete
from rpgssm.model import Fixed

Activation = Callable[[Array], Array]

BLOCK = 4096
TRUNCATED_STD = 0.87962566103423978  # of a standard normal truncated at ±2


def variance_scaling(
    key: PRNGKeyArray, shape: tuple[int, ...], gain: float, dtype=jnp.float32
) -> Float[Array, "*fan_in out"]:
    """Weights with variance `gain / fan_in`, from a normal law truncated at two standard deviations.

    `gain` 2 keeps the size of activations through ReLU layers, 1 through linear ones. The fan-in is the product of all
    axes but the last. The numbers are drawn in blocks of one size, because JAX compiles a random number generator for
    every new shape, which takes longer than to run it.
    """
    count, fan_in = prod(shape), prod(shape[:-1])
    std = (gain / fan_in) ** 0.5 / TRUNCATED_STD
    blocks = [std * _block(k, dtype) for k in split(key, -(-count // BLOCK))]
    if all(map(is_concrete, blocks)):
        return jnp.asarray(np.concatenate(blocks)[:count].reshape(shape))
    return jnp.concatenate(blocks)[:count].reshape(shape)


@partial(jax.jit, static_argnums=1)
def _block(key, dtype):
    return jax.random.truncated_normal(key, -2, 2, (BLOCK,), dtype)


def split(key: PRNGKeyArray, count: int) -> list[PRNGKeyArray]:
    """Keys like those of `jax.random.split`, without another compilation for every count."""
    return [jax.random.fold_in(key, i) for i in range(count)]


def zeros(shape: tuple[int, ...], dtype) -> Float[Array, "..."]:
    return jnp.asarray(np.zeros(shape), dtype)


class Dense(eqx.Module):
    """An affine map of rows: `x W + b`."""

    weight: Float[Array, "i o"]
    bias: Float[Array, " o"]

    def __init__(self, in_dim: int, out_dim: int, *, key: PRNGKeyArray, gain: float = 2.0, dtype=jnp.float32):
        self.weight = variance_scaling(key, (in_dim, out_dim), gain, dtype)
        self.bias = zeros((out_dim,), dtype)

    def __call__(self, x: Float[Array, "n i"]) -> Float[Array, "n o"]:
        return x @ self.weight + self.bias[None]


class MLP(eqx.Module):
    """Dense layers with an activation after each; after the last one only with `activate_last`."""

    layers: tuple[Dense, ...]
    activation: Activation = eqx.field(static=True)
    activate_last: bool = eqx.field(static=True)

    def __init__(
        self,
        sizes: tuple[int, ...],
        *,
        key: PRNGKeyArray,
        activation: Activation = jax.nn.relu,
        activate_last: bool = True,
        dtype=jnp.float32,
    ):
        keys = split(key, len(sizes) - 1)
        last = len(sizes) - 2
        self.layers = tuple(
            Dense(i, o, key=k, gain=2.0 if n < last or activate_last else 1.0, dtype=dtype)
            for n, (i, o, k) in enumerate(zip(sizes[:-1], sizes[1:], keys, strict=True))
        )
        self.activation = activation
        self.activate_last = activate_last

    def __call__(self, x: Float[Array, "n i"]) -> Float[Array, "n o"]:
        for layer in self.layers[:-1]:
            x = self.activation(layer(x))
        x = self.layers[-1](x)
        return self.activation(x) if self.activate_last else x


class Standardise(Fixed):
    """`(x - shift) / scale` with fixed numbers, one for all of a frame or one per channel, feature or pixel.

    They come from the training data and are not trained: they have no gradient and no weight decay.
    """

    shift: Float[Array, "..."]
    scale: Float[Array, "..."]

    def __init__(self, frame_shape: tuple[int, ...], shift: ArrayLike = 0.0, scale: ArrayLike = 1.0, dtype=jnp.float32):
        self.shift = _fixed("shift", shift, frame_shape, dtype)
        self.scale = _fixed("scale", scale, frame_shape, dtype)
        if is_concrete(self.scale) and not np.all(np.asarray(self.scale) > 0):
            raise ValueError("scale must be positive everywhere; use 1 for features that do not vary")

    def __call__(self, frames: Float[Array, "n *frame"]) -> Float[Array, "n *frame"]:
        return (frames - self._like(self.shift, frames)) / self._like(self.scale, frames)

    def inverse(self, frames: Float[Array, "n *frame"]) -> Float[Array, "n *frame"]:
        return frames * self._like(self.scale, frames) + self._like(self.shift, frames)

    def log_volume(self, frame_shape: tuple[int, ...]) -> Float[Array, ""]:
        """The logarithm of the factor by which `inverse` stretches volumes of frames."""
        return jnp.log(jnp.broadcast_to(lax.stop_gradient(self.scale), frame_shape)).sum()

    @staticmethod
    def _like(x, frames):
        return lax.stop_gradient(x.reshape((1,) * (frames.ndim - x.ndim) + x.shape))


def _fixed(name, value, frame_shape, dtype):
    value = jnp.asarray(value, dtype)
    try:
        fits = np.broadcast_shapes(value.shape, frame_shape) == tuple(frame_shape)
    except ValueError:
        fits = False
    if not fits:
        raise ValueError(
            f"{name} has shape {value.shape}, which does not broadcast to frames of shape {tuple(frame_shape)}; "
            "give one number, one per channel or feature (the last axis), or one per pixel"
        )
    if is_concrete(value) and not np.all(np.isfinite(np.asarray(value))):
        raise ValueError(f"{name} has values that are not finite; leave missing frames out when you compute it")
    return value


def standardisation(
    frames: Float[Array | np.ndarray, "n t *frame"], mask: Bool[Array | np.ndarray, "n t"] | None = None
) -> tuple[Float[np.ndarray, "..."], Float[np.ndarray, "..."]]:
    """Mean and standard deviation of the observed frames: per feature for vectors, per channel for images.

    Constant features and channels get the scale 1.
    """
    x = np.asarray(frames)
    x = x.reshape(-1, *x.shape[2:]) if mask is None else x[np.asarray(mask)]
    if x.shape[0] == 0:
        raise ValueError(
            "no frame is observed, so there is nothing to learn from: all hold NaN (a channel that is NaN throughout "
            "makes every frame missing: leave it out), or the mask is False everywhere"
        )
    axes = tuple(range(x.ndim)) if x.ndim == 3 else tuple(range(x.ndim - 1))
    shift, spread = (np.asarray(f(x, axes, dtype=np.float64)) for f in (np.mean, np.std))
    # a constant feature has a spread of rounding errors rather than of zero
    varies = spread > 1e-6 * np.maximum(np.abs(shift), 1e-30)
    return np.asarray(shift.astype(x.dtype)), np.where(varies, spread, 1.0).astype(x.dtype)


def parameter_dtype(tree: Any, default=jnp.float32) -> Any:
    """The dtype of the first array of floating point numbers in a module."""
    leaves = [x for x in jax.tree.leaves(tree) if eqx.is_inexact_array(x)]
    return leaves[0].dtype if leaves else jnp.dtype(default)
