"""Which axes of a user's arrays count sequences and frames.

An element of a list is always one sequence. Whether the first axis of an array counts sequences or frames is decided

1. by the shape that frames are known to have (after fitting);
2. else by what frames are said to be: `frame_ndim` 0 for numbers, 1 for vectors, 2 for images, grey (T, H, W) or in
   colour (T, H, W, C), 3 for images in colour only;
3. else by the number of axes: (T,) and (T, D) are one sequence, anything larger is (N, T, ...).
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Int, Shaped
from numpy import ndarray

from .arrays import padded, to_array

NAME = "observations"  # of the modality, if the user gives none
COLOURS = (1, 3, 4)  # lengths of the last axis that make an array of images one in colour


@dataclass
class Raw:
    """One modality before conversion of its values, padded with zeros to the longest sequence.

    `label` names it in messages. Single numbers have become vectors of length 1.
    """

    label: str
    values: Shaped[ndarray, "n t *frame"]
    lengths: Int[ndarray, " n"]


def read_shapes(
    data: object,
    frame_ndim: int | Mapping[str, int] | None,
    frame_shapes: Mapping[str, tuple[int, ...]] | None,
    notes: list[str],
) -> dict[str, Raw]:
    """Read the modalities of a user's data, by name; add guesses to the notes."""
    if isinstance(data, Mapping):
        given, labels = dict(data), {name: f"data[{name!r}]" for name in data}
        if not data:
            raise ValueError("data is an empty mapping: pass at least one modality")
        if wrong := [name for name in data if not isinstance(name, str)]:
            raise ValueError(f"data has the modality {wrong[0]!r}: the names of modalities are strings")
    else:
        name = next(iter(frame_shapes)) if frame_shapes is not None and len(frame_shapes) == 1 else NAME
        given, labels = {name: data}, {name: "data"}
    if frame_shapes is not None and set(frame_shapes) != set(given):
        raise ValueError(
            f"the modalities must be {', '.join(sorted(frame_shapes))}, but data has {', '.join(sorted(given))}: pass "
            "a mapping with just these names (NaN where one is missing)"
        )
    raw = {}
    for name, value in given.items():
        ndim = frame_ndim.get(name) if isinstance(frame_ndim, Mapping) else frame_ndim
        if ndim not in (None, 0, 1, 2, 3):
            raise ValueError(f"frame_ndim is {ndim!r}, not 0 (numbers), 1 (vectors), 2 (images) or 3 (colour images)")
        shape = None if frame_shapes is None else tuple(frame_shapes[name])
        if isinstance(value, list | tuple):
            raw[name] = _from_list(labels[name], value, ndim, shape)
        else:
            raw[name] = _from_array(labels[name], value, ndim, shape, notes)
    return raw


def _from_array(label: str, value: object, ndim: int | None, shape: tuple[int, ...] | None, notes: list[str]) -> Raw:
    x = to_array(label, value)
    if x.size == 0:
        raise ValueError(f"{label} has shape {x.shape}, which holds nothing: pass at least one frame of one sequence")
    lead = _leading_axes(label, x.shape, ndim, shape)
    if lead == 1:
        if shape is None and ndim is None and x.ndim == 2:
            notes.append(
                f"{label} of shape {x.shape} is read as one sequence of {len(x)} frames; many sequences of single "
                f"numbers would be {label}[..., None]"
            )
        elif shape is None and ndim == 2 and x.ndim == 4:
            notes.append(f"{label} of shape {x.shape} is read as one video of {len(x)} frames in colour")
        x = x[None]
    x = _with_frame_axis(x, shape)
    return Raw(label, x, np.full(len(x), x.shape[1]))


def _leading_axes(label: str, shape: tuple[int, ...], ndim: int | None, frame: tuple[int, ...] | None) -> int:
    """1 if an array of this shape is one sequence, 2 if it is several."""
    if frame is not None:
        for lead in (1, 2):
            if fits(shape[lead:], frame) and len(shape) >= lead:
                return lead
        numbers = "".join(f", {size}" for size in frame)
        raise ValueError(
            f"{label} has shape {shape}, but frames have shape {frame}: pass (N, T{numbers}), or (T{numbers}) for one "
            "sequence"
        )
    image = 1 if shape[-1:] and shape[-1] in COLOURS else 2
    choices, wanted = {
        None: ({1: 1, 2: 1}, "(N, T, ...) for N sequences of T frames, or (T,) or (T, D) for one"),
        0: ({1: 1, 2: 2}, "single numbers: (N, T), or (T,) for one sequence"),
        1: ({1: 1, 2: 1, 3: 2}, "vectors: (N, T, D), or (T, D) for one sequence"),
        2: (
            {3: 1, 4: image, 5: 2},
            "images: (N, T, H, W), (N, T, H, W, C), or (T, H, W) or (T, H, W, C) for one video",
        ),
        3: ({4: 1, 5: 2}, "images in colour: (N, T, H, W, C), or (T, H, W, C) for one video"),
    }[ndim]
    choice = 2 if ndim is None and len(shape) > 2 else choices.get(len(shape))
    if choice is None:
        raise ValueError(f"{label} has shape {shape}, but it must hold {wanted}")
    return choice


def _from_list(label: str, value: list | tuple, ndim: int | None, shape: tuple[int, ...] | None) -> Raw:
    if not value:
        raise ValueError(f"{label} is an empty list: pass at least one sequence")
    wanted = {None: (1, None), 0: (1, 1), 1: (1, 2), 2: (3, 4), 3: (4, 4)}[ndim]
    arrays = []
    for n, item in enumerate(value):
        x = to_array(f"{label}[{n}]", item)
        if x.ndim == 0:
            raise ValueError(
                f"{label}[{n}] is a single number, but the elements of a list are sequences: pass one sequence as an "
                "array, np.asarray(data)"
            )
        if len(x) == 0:
            raise ValueError(f"{label}[{n}] has no frames: leave empty sequences out")
        if x.size == 0:
            raise ValueError(f"{label}[{n}] has shape {x.shape}, whose frames hold nothing")
        if shape is not None and not fits(x.shape[1:], shape):
            raise ValueError(f"{label}[{n}] has frames of shape {x.shape[1:]}, but they must have shape {shape}")
        if shape is None and (x.ndim < wanted[0] or (wanted[1] is not None and x.ndim > wanted[1])):
            kinds = {0: "single numbers (T,)", 1: "vectors (T, D)", 2: "images (T, H, W) or (T, H, W, C)"}
            raise ValueError(
                f"{label}[{n}] has shape {x.shape}, but each element must be one sequence of "
                f"{kinds.get(ndim or 0, 'images in colour (T, H, W, C)')}"
            )
        x = _with_frame_axis(x[None], shape)[0]
        if arrays and x.shape[1:] != arrays[0].shape[1:]:
            raise ValueError(
                f"{label}[{n}] has frames of shape {x.shape[1:]}, but those of {label}[0] have shape "
                f"{arrays[0].shape[1:]}: all frames of a modality need the same shape (crop or resize them)"
            )
        arrays.append(x)
    lengths = np.array([len(x) for x in arrays])
    return Raw(label, arrays[0][None] if len(arrays) == 1 else padded(arrays, int(lengths.max())), lengths)


def fits(found: tuple[int, ...], frame: tuple[int, ...]) -> bool:
    """Whether frames have this shape, or would have it with another axis of length 1."""
    return found == frame or (*found, 1) == frame


def _with_frame_axis(x: Shaped[ndarray, "n t *f"], frame: tuple[int, ...] | None) -> Shaped[ndarray, "n t *g"]:
    """Add an axis of length 1 to single numbers, and to other frames that are known to have it."""
    return x[..., None] if x.ndim == 2 or (frame is not None and x.shape[2:] != frame) else x


def set_lengths(raw: dict[str, Raw], lengths: object) -> None:
    """Set the user's numbers of frames, for arrays that were already padded."""
    given = to_array("lengths", lengths)
    for modality in raw.values():
        count = len(modality.lengths)
        if given.shape != (count,) or given.dtype.kind not in "iu":
            raise ValueError(
                f"lengths has shape {given.shape} and dtype {given.dtype}, but {modality.label} has {count} sequences: "
                "pass one integer for each (sequences that follow each other in one array: cut them into a list, "
                "or pad them to (N, T, ...))"
            )
        if np.any((given < 1) | (given > modality.lengths)):
            n = int(np.argmax((given < 1) | (given > modality.lengths)))
            raise ValueError(
                f"lengths[{n}] is {given[n]}, but sequence {n} of {modality.label} has {modality.lengths[n]} frames: "
                "a length is at least 1 and at most that"
            )
        modality.lengths = given.astype(np.int64)


def check_same_frames(first: Raw, other: Raw) -> None:
    """Raise if two modalities differ in the number of sequences or of frames."""
    if len(first.lengths) != len(other.lengths):
        raise ValueError(
            f"{first.label} has {len(first.lengths)} sequences but {other.label} has {len(other.lengths)}: all "
            "modalities need the same sequences (fill what was not recorded with NaN)"
        )
    if np.any(first.lengths != other.lengths):
        n = int(np.argmax(first.lengths != other.lengths))
        raise ValueError(
            f"sequence {n} has {first.lengths[n]} frames in {first.label} but {other.lengths[n]} in {other.label}: all "
            "modalities need the same frames (fill what was not recorded with NaN)"
        )
