"""Controls of a fitted model: are they those it knows, and which of them act before and after a forecast begins."""

from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy import ndarray

from rpgssm.data import Sequences, as_controls
from rpgssm.data.arrays import to_array


def check_controls(data: Sequences, dim: int | None, values: int | None, name: str) -> None:
    """Raise unless the data have vectors of `dim` numbers, integers below `values`, or no controls if both are None."""
    controls = data.controls
    if dim is None and values is None:
        if controls is not None:
            raise ValueError(f"the model was fitted without controls: leave {name} out")
        return
    if controls is None:
        raise ValueError(f"the model was fitted with controls: pass {name}= here too")
    wanted = f"vectors of length {dim}" if values is None else f"integers from 0 to {values - 1}"
    found = "integers" if controls.ndim == 2 else f"vectors of length {controls.shape[-1]}"
    if (controls.ndim == 2) != (values is not None) or (values is None and controls.shape[-1] != dim):
        raise ValueError(f"{name} are {found}, but the model was fitted with {wanted}: pass these")
    if values is not None and (wrong := np.argwhere(np.asarray(controls) >= values)).size:
        n, t = wrong[0]
        raise ValueError(
            f"{name} hold {controls[n, t]} in sequence {n}, frame {t}, but the model was fitted with {wanted}"
        )


def split_controls(
    controls: Any, lengths: Int[ndarray, " n"], time: int, steps: int, dim: int | None
) -> tuple[Any, Float[ndarray, "n ahead u"] | Int[ndarray, "n ahead"]]:
    """Controls of the context, (n, time, ...), and of the `steps` ahead, (n, steps + 1, ...).

    The first of the latter is that of the last frame of the context, which leads to the first frame ahead. The controls
    of each sequence begin with its first frame; what they hold beyond the forecast is not used. `dim` is the length of
    control vectors, None for integers.
    """
    rows = []
    for n, (row, length) in enumerate(zip(_rows(controls, len(lengths), dim), lengths, strict=True)):
        needed = int(length) + steps
        if len(row) < needed - 1:
            raise ValueError(
                f"controls of sequence {n} have {len(row)} frames: a forecast needs one for each of the {length} "
                f"frames of the sequence and of the {steps} steps to come"
            )
        # the control of the very last frame has no effect, and may be missing
        rows.append(row[:needed] if len(row) >= needed else np.concatenate([row, row[-1:]]))
    padded = as_controls(rows, lengths + steps, time + steps, np.dtype(np.float32), [])
    ahead = lengths[:, None] - 1 + np.arange(steps + 1)
    exists = np.arange(time) < lengths[:, None]
    context = padded[:, :time]
    context = np.where(exists.reshape(*exists.shape, *[1] * (context.ndim - 2)), context, np.zeros_like(context))
    return context, padded[np.arange(len(lengths))[:, None], ahead]


def _rows(controls: Any, count: int, dim: int | None) -> list[ndarray]:
    """One array for each sequence."""
    if isinstance(controls, list | tuple) and not all(np.ndim(row) == 0 for row in controls):
        rows = [to_array(f"controls[{n}]", row) for n, row in enumerate(controls)]
    else:
        x = to_array("controls", controls)
        vectors_of_one = x.ndim == 2 and dim is not None and x.shape[1] == dim and not (x.shape[0] == dim == 1)
        one = count == 1 and (x.ndim == 1 or vectors_of_one)
        rows = [x] if one else list(x) if x.ndim > 1 else []
    if len(rows) != count:
        raise ValueError(
            f"controls have shape {np.shape(controls)}, but X has {count} sequences: pass one row of controls for each"
            if not isinstance(controls, list | tuple)
            else f"controls are given for {len(rows)} sequences, but X has {count}"
        )
    return rows
