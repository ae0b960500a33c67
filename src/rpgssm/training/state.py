"""The state of training, and its conversion to named arrays."""

from typing import Any

import equinox as eqx
import jax
import numpy as np
from jaxtyping import Array, Float, Int, PyTree, UInt32

from .optimizer import path_name


class TrainingState(eqx.Module):
    """Everything that the next step depends on, apart from data and settings.

    `params` are the floating point arrays of the model. `keys` never change: the randomness of a step, and the order of
    the data in an epoch, are functions of `keys` and of the number of steps. `totals` are sums of the loss terms since
    the last row of the history. With several models at once all arrays have a leading axis.
    """

    params: PyTree
    optimizer: Any
    keys: UInt32[Array, "*models purposes words"]
    step: Int[Array, "*models"]
    totals: dict[str, Float[Array, "*models"]]


def to_arrays(tree: PyTree, prefix: str) -> dict[str, np.ndarray]:
    """The leaves of a pytree by name, on the host."""
    leaves = jax.tree_util.tree_leaves_with_path(tree)
    arrays = {f"{prefix}.{path_name(path)}": np.asarray(leaf) for path, leaf in leaves}
    if len(arrays) != len(leaves):
        raise ValueError(f"Two arrays of `{prefix}` have the same path: {sorted(arrays)}.")
    return arrays


def from_arrays(template: PyTree, prefix: str, arrays: dict[str, np.ndarray]) -> PyTree:
    """A pytree like `template` with the named leaves. Raises ValueError with the names of leaves that do not fit."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(template)
    expected = {f"{prefix}.{path_name(path)}": leaf for path, leaf in leaves}
    stored = {name for name in arrays if name.startswith(f"{prefix}.")}
    wrong = [f"{name} is stored and not in the model" for name in sorted(stored - set(expected))]
    for name, leaf in expected.items():
        if name not in arrays:
            wrong.append(f"{name} is not stored")
        elif arrays[name].shape != leaf.shape or arrays[name].dtype != leaf.dtype:
            here, there = _describe(leaf), _describe(arrays[name])
            wrong.append(f"{name} is {here} in the model and {there} in the checkpoint")
    if wrong:
        raise ValueError("; ".join(wrong))
    return structure.unflatten([jax.numpy.asarray(arrays[name]) for name in expected])


def _describe(array: Any) -> str:
    return f"{np.dtype(array.dtype).name}{list(array.shape)}"
