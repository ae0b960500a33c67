"""Random features: a layer that is not trained, and the leading principal components of its output.

A linear model can combine these many functions of a few numbers. Since the layer never changes, its output is like
data.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.typing import ArrayLike
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from rpgssm.model import Fixed

from .layers import Standardise, split, variance_scaling

SEEN = 20_000  # frames for the principal components


class RandomFeatures(Fixed):
    """The leading principal components of a layer of random ReLU units. It has no trained parameters.

    Without training frames the components are zero: placeholders for saved ones.
    """

    standardise: Standardise
    weight: Float[Array, "i u"]
    bias: Float[Array, " u"]
    centre: Float[Array, " u"]
    components: Float[Array, "u c"]
    out_dim: int = eqx.field(static=True)

    def __init__(
        self,
        size: int,
        units: int,
        components: int,
        *,
        key: PRNGKeyArray,
        shift: ArrayLike,
        scale: ArrayLike,
        frames: Shaped[np.ndarray, "n i"] | None = None,
    ):
        for_weight, for_bias = split(key, 2)
        dtype = jnp.float32
        self.standardise = Standardise((size,), shift, scale, dtype)
        self.weight = variance_scaling(for_weight, (size, units), 2.0, dtype)
        self.bias = variance_scaling(for_bias, (1, units), 1.0, dtype)[0]
        self.out_dim = min(components, units)
        self.centre = jnp.asarray(np.zeros(units), dtype)
        self.components = jnp.asarray(np.zeros((units, self.out_dim)), dtype)
        if frames is not None:
            seen = np.asarray(self._units(jnp.asarray(frames[:: -(-len(frames) // SEEN)])), float)
            centred = seen - seen.mean(0)
            _, vectors = np.linalg.eigh(centred.T @ centred)
            self.centre = jnp.asarray(seen.mean(0), dtype)
            self.components = jnp.asarray(vectors[:, ::-1][:, : self.out_dim], dtype)

    def __call__(self, frames: Shaped[Array, "n i"]) -> Float[Array, "n c"]:
        fixed = lax.stop_gradient(self)
        return (fixed._units(frames) - fixed.centre[None]) @ fixed.components

    def _units(self, frames: Shaped[Array, "n i"]) -> Float[Array, "n u"]:
        return jax.nn.relu(self.standardise(frames) @ self.weight + self.bias[None])
