"""The door: whatever a user brings becomes `Sequences`, or an error that says what to change.

Accepted are an array of sequences (N, T, ...), one long sequence (T, ...), a list of sequences of different lengths,
and a mapping from names to any of these, for several modalities recorded together; how they are told apart is said in
`shapes.py`. Frames with NaN are missing; so is what `mask` says. Every conversion is reported in a note. Positions in
messages are counted from 0, as in indexing.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Bool
from numpy import ndarray

from .arrays import broken_frames, converted, float_type, storage, to_array
from .controls import as_controls
from .sequences import Modality, Sequences
from .shapes import Raw, check_same_frames, read_shapes, set_lengths


@dataclass(frozen=True)
class Recording:
    """What was found in a file, as `as_sequences` takes it."""

    data: Any
    mask: Any = None
    controls: Any = None
    lengths: Any = None


def as_sequences(
    data: Any,
    *,
    mask: Any = None,
    controls: Any = None,
    lengths: Any = None,
    frame_ndim: int | Mapping[str, int] | None = None,
    frame_shapes: Mapping[str, tuple[int, ...]] | None = None,
    dtype: Any = None,
) -> tuple[Sequences, list[str]]:
    """The data as sequences of NumPy arrays, and notes on what was converted or understood on the way.

    `mask` is True where a frame is observed: (N, T), (T,) for one sequence, a list, or a mapping from modalities to any
    of these. `controls` are floats (N, T, U) or integers (N, T), or a list. `lengths` (N,) says how many frames of each
    sequence exist, if an array was padded already. `frame_ndim` and `frame_shapes` (by name)
    help to tell sequences from frames. Values are converted to float32 (but images of uint8 and uint16 stay integers
    and get a scale), or to `dtype`. Raises ValueError, naming array, sequence and frame.
    """
    if isinstance(data, Recording):
        mask = data.mask if mask is None else mask
        controls = data.controls if controls is None else controls
        lengths = data.lengths if lengths is None else lengths
        data = data.data
    if isinstance(data, Sequences):
        if any(x is not None for x in (mask, controls, lengths)):
            raise ValueError("data is Sequences already: mask, controls and lengths belong into it")
        if frame_shapes is not None and data.frame_shapes != dict(frame_shapes):
            raise ValueError(f"data has frames of shape {data.frame_shapes}, but they must be {dict(frame_shapes)}")
        return data, []

    notes: list[str] = []
    floating = float_type(dtype)
    raw = read_shapes(data, frame_ndim, frame_shapes, notes)
    first = next(iter(raw.values()))
    for other in raw.values():
        check_same_frames(first, other)
    if lengths is not None:
        set_lengths(raw, lengths)
    if first.lengths.max() < 2 and frame_shapes is None:
        raise ValueError(
            f"{first.label} has one frame per sequence, and nothing can be learned of how it changes: pass sequences "
            "of at least 2 frames (one long sequence as (T, ...))"
        )
    masks = _masks(mask, raw)
    modalities = {name: _modality(raw[name], masks.get(name), floating, notes) for name in sorted(raw)}
    time = first.values.shape[1]
    inputs = None if controls is None else as_controls(controls, first.lengths, time, floating, notes)
    if np.all(first.lengths == time):
        return Sequences(modalities, inputs), notes
    return Sequences(modalities, inputs, first.lengths.astype(np.int32)).trimmed(), notes


def _masks(mask: Any, raw: dict[str, Raw]) -> dict[str, Bool[ndarray, "n t"]]:
    """The masks that the user gave, for each modality that has one."""
    if mask is None:
        return {}
    if not isinstance(mask, Mapping):
        return dict.fromkeys(raw, _mask("mask", mask, next(iter(raw.values()))))
    if unknown := [name for name in mask if name not in raw]:
        raise ValueError(f"mask has the modality {unknown[0]!r}, which data has not: it has {', '.join(sorted(raw))}")
    return {name: _mask(f"mask[{name!r}]", one, raw[name]) for name, one in mask.items() if one is not None}


def _mask(label: str, mask: Any, raw: Raw) -> Bool[ndarray, "n t"]:
    count, time = raw.values.shape[:2]
    result = np.zeros((count, time), bool)
    if isinstance(mask, list | tuple) and not all(np.ndim(row) == 0 for row in mask):
        rows = [_boolean(f"{label}[{n}]", row) for n, row in enumerate(mask)]
        if len(rows) != count:
            raise ValueError(f"{label} has {len(rows)} sequences but {raw.label} has {count}")
        for n, (row, length) in enumerate(zip(rows, raw.lengths, strict=True)):
            if row.shape not in ((length,), (time,)):
                raise ValueError(
                    f"{label}[{n}] has shape {row.shape}, but sequence {n} of {raw.label} has {length} frames: pass "
                    "one value for each frame, True where it is observed"
                )
            result[n, :length] = row[:length]
        return result
    x = _boolean(label, mask)
    if x.shape == (time,) and count == 1:
        x = x[None]
    if x.shape != (count, time):
        raise ValueError(
            f"{label} has shape {x.shape}, but {raw.label} has {count} sequences of {time} frames: pass one value for "
            f"each frame, shape ({count}, {time}), True where it is observed"
        )
    return x


def _boolean(label: str, value: Any) -> Bool[ndarray, "..."]:
    x = to_array(label, value)
    if x.dtype != bool and not np.isin(x, (0, 1)).all():
        raise ValueError(f"{label} holds values other than True and False (or 1 and 0): True is for observed frames")
    return x.astype(bool)


def _modality(raw: Raw, mask: Bool[ndarray, "n t"] | None, floating: np.dtype, notes: list[str]) -> Modality:
    kept, scale, note = storage(raw.values.dtype, raw.values.ndim >= 4, floating)
    if note is not None:
        notes.append(f"{raw.label}: {note}")
    values = converted(raw.values, kept)
    exists = np.arange(values.shape[1]) < raw.lengths[:, None]
    observed = exists if mask is None else exists & mask
    if np.issubdtype(kept, np.floating):
        nan, infinite = (x & observed for x in broken_frames(values))
        if infinite.any():
            n, t = np.argwhere(infinite)[0]
            raise ValueError(
                f"{raw.label} holds an infinite value (or one too large for {kept}) in sequence {n}, frame {t}: "
                "correct it, or put NaN there if the frame is missing"
            )
        if nan.any():
            notes.append(f"{raw.label}: {nan.sum()} of {exists.sum()} frames hold NaN and are taken as missing")
            observed = observed & ~nan
    if observed.all():
        return Modality(values, None, scale)
    if len(never := np.flatnonzero(~observed.any(1))):
        shown = ", ".join(map(str, never[:10])) + (", ..." if len(never) > 10 else "")
        notes.append(f"{raw.label}: nothing is observed in {'sequence' if len(never) == 1 else 'sequences'} {shown}")
    n, t = np.nonzero(~observed)
    if np.any(values[n, t] != 0):
        values = values if values.base is None and values is not raw.values else values.copy()
        values[n, t] = 0
    return Modality(values, observed, scale)
