"""Controls of sequences: conversion, comparison with a fitted model, and the split at the start of a forecast.

Each frame of each sequence has a control: real vectors (n, t, u) or integers (n, t). Floats are vectors, even with one
number per frame. Integers with one number per frame are a discrete input (0, 1, 2, ...); with several numbers they
become vectors. No control may be missing.
"""

from collections.abc import Sequence

import numpy as np
from jaxtyping import Bool, Float, Int, Shaped
from numpy import ndarray

from .arrays import converted, is_list, padded, to_array
from .sequences import Sequences


def as_controls(
    controls: object, lengths: Int[ndarray, " n"], time: int, floating: np.dtype, notes: list[str]
) -> Float[ndarray, "n t u"] | Int[ndarray, "n t"]:
    """Convert the controls of sequences of these lengths, padded with zeros to `time`; add conversions to the notes."""
    if is_list(controls):
        x = _from_list(controls, lengths, time)
    else:
        x = _from_array(to_array("controls", controls), len(lengths), time)
    exists = np.arange(time) < lengths[:, None]
    if x.ndim == 2 and x.dtype.kind in "biu":
        x = x.astype(np.int64)
        _refuse((x < 0) & exists, "a negative value", "count the values of a discrete control from 0")
        _refuse((x > np.iinfo(np.int32).max) & exists, "a value too large", "count the values from 0 without gaps")
        return np.where(exists, x, 0).astype(np.int32)
    if x.dtype != floating:
        notes.append(f"controls: {x.dtype} values are converted to {floating}")
        x = converted(x, floating)
    x = x[..., None] if x.ndim == 2 else x
    broken = ~np.isfinite(x).all(-1) & exists
    _refuse(broken, "NaN or an infinite value", "controls cannot be missing; fill it, for example with 0")
    return x if exists.all() else np.where(exists[..., None], x, np.zeros((), x.dtype))


def check_controls(data: Sequences, dim: int | None, values: int | None, name: str) -> None:
    """Raise unless controls are vectors of `dim` numbers, integers below `values`, or absent if both are None."""
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
    controls: object, lengths: Int[ndarray, " n"], time: int, steps: int, dim: int | None
) -> tuple[
    Float[ndarray, "n time u"] | Int[ndarray, "n time"],
    Float[ndarray, "n ahead u"] | Int[ndarray, "n ahead"],
]:
    """Split controls into those of the context, (n, time, ...), and those of a forecast, (n, steps + 1, ...).

    The second part begins with the control of the last frame of the context, which leads to the first frame ahead. The
    controls of each sequence begin with its first frame; controls beyond the forecast are not used. `dim` is the length
    of control vectors, None for integers.
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
    whole = as_controls(rows, lengths + steps, time + steps, np.dtype(np.float32), [])
    ahead = lengths[:, None] - 1 + np.arange(steps + 1)
    context = whole[:, :time].copy()
    context[np.arange(time) >= lengths[:, None]] = 0
    return context, whole[np.arange(len(lengths))[:, None], ahead]


def _rows(controls: object, count: int, dim: int | None) -> list[ndarray]:
    """One array for each sequence."""
    if is_list(controls):
        rows = [to_array(f"controls[{n}]", row) for n, row in enumerate(controls)]
        found = f"are given for {len(rows)} sequences, but X has {count}"
    else:
        x = to_array("controls", controls)
        vectors_of_one = x.ndim == 2 and dim is not None and x.shape[1] == dim and not (x.shape[0] == dim == 1)
        one = count == 1 and (x.ndim == 1 or vectors_of_one)
        rows = [x] if one else list(x) if x.ndim > 1 else []
        found = f"have shape {x.shape}, but X has {count} sequences: pass one row of controls for each"
    if len(rows) != count:
        raise ValueError(f"controls {found}")
    return rows


def _from_array(x: Shaped[ndarray, "..."], count: int, time: int) -> Shaped[ndarray, "n t *u"]:
    if count == 1 and x.shape[:2] != (1, time):
        x = x[None]
    if x.shape[:2] != (count, time) or x.ndim > 3 or 0 in x.shape:
        hint = "; the control of the last frame has no effect and may be 0" if x.shape[1:2] == (time - 1,) else ""
        raise ValueError(
            f"controls have shape {x.shape}, but the data has {count} sequences of {time} frames: pass vectors "
            f"({count}, {time}, U) or integers ({count}, {time}), one for each frame{hint}"
        )
    return x


def _from_list(controls: Sequence[object], lengths: Int[ndarray, " n"], time: int) -> Shaped[ndarray, "n t *u"]:
    if len(controls) != len(lengths):
        raise ValueError(f"controls have {len(controls)} sequences, but the data has {len(lengths)}")
    rows = [to_array(f"controls[{n}]", row) for n, row in enumerate(controls)]
    for n, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if row.ndim not in (1, 2) or len(row) != length or 0 in row.shape:
            raise ValueError(
                f"controls[{n}] have shape {row.shape}, but sequence {n} has {length} frames: pass vectors "
                f"({length}, U) or integers ({length},), one for each frame"
            )
        if row.shape[1:] != rows[0].shape[1:]:
            raise ValueError(
                f"controls[{n}] have shape {row.shape} but controls[0] have {rows[0].shape}: all need equally many "
                "numbers per frame"
            )
    return padded(rows, time)


def _refuse(wrong: Bool[ndarray, "n t"], found: str, todo: str) -> None:
    if wrong.any():
        n, t = np.argwhere(wrong)[0]
        raise ValueError(f"controls hold {found} in sequence {n}, frame {t}: {todo}")
