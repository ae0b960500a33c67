"""Controls at the door: real vectors (n, t, u) or integers (n, t), one for each frame of each sequence.

Floats are vectors, also where there is just one number per frame. Integers with one number per frame are a discrete
input (0, 1, 2, ...); with several they are vectors. Nothing may be missing.
"""

from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy import ndarray

from .arrays import converted, to_array


def as_controls(
    controls: Any, lengths: Int[ndarray, " n"], time: int, floating: np.dtype, notes: list[str]
) -> Float[ndarray, "n t u"] | Int[ndarray, "n t"]:
    """The controls of sequences with these lengths, padded with zeros to `time`; conversions are added to the notes."""
    if isinstance(controls, list | tuple) and not all(np.ndim(row) == 0 for row in controls):
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


def _from_list(controls: Any, lengths: Int[ndarray, " n"], time: int) -> Shaped[ndarray, "n t *u"]:
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
    padded = np.zeros((len(rows), time, *rows[0].shape[1:]), np.result_type(*(row.dtype for row in rows)))
    for out, row in zip(padded, rows, strict=True):
        out[: len(row)] = row
    return padded


def _refuse(wrong: Any, what: str, todo: str) -> None:
    if wrong.any():
        n, t = np.argwhere(wrong)[0]
        raise ValueError(f"controls hold {what} in sequence {n}, frame {t}: {todo}")
