"""Small things to train: linear regression on sequences, quick to compile."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Float

from rpgssm.data import Modality, Sequences


class Line(eqx.Module):
    """y = x w + offset, with the offset called a prior so that it has a rate of its own."""

    weight: Float[Array, " d"]
    prior: Float[Array, ""]
    name: str = "line"


def line(seed: int = 0, dtype: Any = jnp.float32) -> Line:
    return Line(jr.normal(jr.key(seed), (3,), dtype), jnp.ones((), dtype))


def regression(n: int = 20, t: int = 5, seed: int = 0, dtype: Any = np.float32) -> Sequences:
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(n, t, 3))
    y = x @ np.array([1.0, -2.0, 0.5]) + 0.3 + 0.1 * rng.normal(size=(n, t))
    return Sequences({"x": Modality(x.astype(dtype)), "y": Modality(y[..., None].astype(dtype))})


def squared_error(model: Line, batch: Sequences, key: Any) -> tuple[Array, dict[str, Any]]:
    """With a little noise, so that the random state matters."""
    x, y = batch.modalities["x"].frames(), batch.modalities["y"].frames()[..., 0]
    noise = 0.01 * jnp.sin(jr.key_data(key)[0].astype(y.dtype))  # cheap to compile
    errors = jnp.mean((jnp.einsum("ntd,d->nt", x, model.weight) + model.prior - y + noise) ** 2, axis=1)
    fit, size = jnp.mean(errors), jnp.sum(model.weight**2)
    return fit + 1e-3 * size, {"fit": fit, "size": size, "per_sequence": {"fit": errors}}


def assert_equal(a: Any, b: Any) -> None:
    """Bit for bit."""
    leaves, others = jax.tree.leaves(eqx.filter(a, eqx.is_array)), jax.tree.leaves(eqx.filter(b, eqx.is_array))
    assert len(leaves) == len(others)
    for x, y in zip(leaves, others, strict=True):
        assert x.dtype == y.dtype
        assert np.asarray(x).tobytes() == np.asarray(y).tobytes(), (x, y)
