"""Random features: a layer that is not trained, and the leading principal components of what it gives.

Many functions of a few numbers, of which a linear model can then make what it needs. Since nothing in it changes, its
output is as good as data.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray, Shaped

from .layers import Fixed, Standardise, split, variance_scaling

SEEN = 20_000  # frames from which principal components are found


class RandomFeatures(Fixed):
    """The leading principal components of a layer of random ReLU units. Nothing in it is trained.

    Without the frames that they are found from, components are zero: a placeholder to be filled with saved ones.
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
        shift: Shaped[np.ndarray, " i"],
        scale: float,
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
