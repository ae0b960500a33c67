"""Convert user input to `Sequences`, or raise an error that says what to change.

`as_sequences` takes an array of sequences (N, T, ...), one long sequence (T, ...), a list of sequences of different
lengths, or a mapping from names to any of these, for several modalities recorded together. `shapes.py` says how it
tells them apart. Frames with NaN are missing, as are frames where `mask` is False. A note reports every conversion.
Messages count positions from 0, as in indexing.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Int
from numpy import ndarray
from numpy.typing import DTypeLike

from .arrays import broken_frames, converted, float_type, is_list, padded, storage, to_array
from .controls import as_controls, check_controls, split_controls
from .sequences import Modality, Sequences
from .shapes import Raw, check_same_frames, fits, read_shapes, set_lengths


@dataclass(frozen=True)
class Recording:
    """The contents of a file, as `as_sequences` takes them."""

    data: object
    mask: object = None
    controls: object = None
    lengths: object = None


def as_sequences(
    data: object,
    *,
    mask: object = None,
    controls: object = None,
    lengths: object = None,
    frame_ndim: int | Mapping[str, int] | None = None,
    frame_shapes: Mapping[str, tuple[int, ...]] | None = None,
    dtype: DTypeLike | None = None,
) -> tuple[Sequences, list[str]]:
    """Convert data to `Sequences` of NumPy arrays; also return notes on conversions and guesses.

    `mask` is True where a frame is observed: (N, T), (T,) for one sequence, a list, or a mapping from modalities to any
    of these. `controls` are floats (N, T, U) or integers (N, T), or a list. `lengths` (N,) counts the frames of each
    sequence in an array that is already padded. `frame_ndim` and `frame_shapes` (by name) help to tell sequences from
    frames. Values are converted to float32 or to `dtype`; images of uint8 and uint16 stay integers and get a scale.
    Raises ValueError, naming array, sequence and frame.
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


def with_future(
    data: object,
    steps: int,
    frame_shapes: Mapping[str, tuple[int, ...]],
    control_dim: int | None,
    n_control_values: int | None,
    *,
    mask: object = None,
    controls: object = None,
) -> tuple[Sequences, Float[ndarray, "n ahead u"] | Int[ndarray, "n ahead"] | None]:
    """Convert data to forecast from, and the controls of the `steps` frames ahead (see `split_controls`).

    `controls` begin with the first frame of each sequence and go on into the future. The model knows frames of
    `frame_shapes`, and vectors of `control_dim` numbers, integers below `n_control_values`, or (both None) no controls.
    """
    if isinstance(data, Recording):
        controls = data.controls if controls is None else controls
        data = Recording(data.data, data.mask, None, data.lengths)
    if isinstance(data, Sequences) and controls is not None:
        data = Sequences(data.modalities, None, data.lengths)
    context, _ = as_sequences(data, mask=mask, frame_shapes=frame_shapes)
    if control_dim is None and n_control_values is None:
        if controls is not None or context.controls is not None:
            raise ValueError("the model was fitted without controls: leave controls= out")
        return context, None
    if controls is None:
        raise ValueError(
            "the model was fitted with controls: pass controls= for the frames of X and for the steps to come"
        )
    time = context.time
    lengths = np.full(len(context), time) if context.lengths is None else np.asarray(context.lengths, np.int64)
    past, future = split_controls(controls, lengths, time, steps, control_dim)
    for part in (past, future):
        check_controls(Sequences(context.modalities, part), control_dim, n_control_values, "controls")
    return Sequences(context.modalities, past, context.lengths), future


def one_frame(frame: object, frame_shapes: Mapping[str, tuple[int, ...]]) -> Sequences:
    """Convert one frame to a batch of one sequence of one frame; None and NaN are missing.

    The batch always holds floating-point values and a mask, so that a program is compiled only once.
    """
    names = ", ".join(sorted(frame_shapes))
    if len(frame_shapes) > 1 and frame is not None and not isinstance(frame, Mapping):
        raise ValueError(f"pass a mapping with the modalities {names}, None where one is missing")
    given = frame if isinstance(frame, Mapping) else dict.fromkeys(frame_shapes, frame)
    if unknown := set(given) - set(frame_shapes):
        raise ValueError(f"the frame has the modality {sorted(unknown)[0]!r}; the model knows {names}")
    modalities = {}
    for name, shape in frame_shapes.items():
        value = given.get(name)
        x, seen = np.zeros((1, 1, *shape), np.float32), value is not None
        if value is not None:
            x = _one_frame(f"the frame of {name}", value, shape)
            nan, infinite = broken_frames(x)
            if infinite.any():
                raise ValueError(f"the frame of {name} holds an infinite value: pass None if it is missing")
            seen = not nan.any()
        modalities[name] = Modality(x if seen else np.zeros_like(x), np.full((1, 1), seen))
    return Sequences(modalities)


def _one_frame(label: str, value: object, shape: tuple[int, ...]) -> Float[ndarray, "1 1 *frame"]:
    x = to_array(label, value)
    if not fits(x.shape, shape):
        raise ValueError(f"{label} has shape {x.shape}, but frames have shape {shape}: pass one frame")
    _, scale, _ = storage(x.dtype, len(shape) > 1, np.dtype(np.float32))
    return converted(x, np.dtype(np.float32)).reshape(1, 1, *shape) * np.float32(scale)


def _masks(mask: object, raw: dict[str, Raw]) -> dict[str, Bool[ndarray, "n t"]]:
    """The user's masks by modality, for modalities with a mask."""
    if mask is None:
        return {}
    if not isinstance(mask, Mapping):
        return dict.fromkeys(raw, _mask("mask", mask, next(iter(raw.values()))))
    if unknown := [name for name in mask if name not in raw]:
        raise ValueError(f"mask has the modality {unknown[0]!r}, which data has not: it has {', '.join(sorted(raw))}")
    return {name: _mask(f"mask[{name!r}]", one, raw[name]) for name, one in mask.items() if one is not None}


def _mask(label: str, mask: object, raw: Raw) -> Bool[ndarray, "n t"]:
    count, time = raw.values.shape[:2]
    if is_list(mask):
        rows = [_boolean(f"{label}[{n}]", row) for n, row in enumerate(mask)]
        if len(rows) != count:
            raise ValueError(f"{label} has {len(rows)} sequences but {raw.label} has {count}")
        for n, (row, length) in enumerate(zip(rows, raw.lengths, strict=True)):
            if row.shape not in ((length,), (time,)):
                raise ValueError(
                    f"{label}[{n}] has shape {row.shape}, but sequence {n} of {raw.label} has {length} frames: pass "
                    "one value for each frame, True where it is observed"
                )
        return padded([row[:length] for row, length in zip(rows, raw.lengths, strict=True)], time)
    x = _boolean(label, mask)
    if x.shape == (time,) and count == 1:
        x = x[None]
    if x.shape != (count, time):
        raise ValueError(
            f"{label} has shape {x.shape}, but {raw.label} has {count} sequences of {time} frames: pass one value for "
            f"each frame, shape ({count}, {time}), True where it is observed"
        )
    return x


def _boolean(label: str, value: object) -> Bool[ndarray, "..."]:
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
