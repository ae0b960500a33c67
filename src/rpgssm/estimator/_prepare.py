"""From what a user passes to `fit` to what training takes: one conversion, one split."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from rpgssm.data import Sequences, as_sequences
from rpgssm.data.controls import check_controls

FEWEST_HELD_OUT = 4  # sequences (or windows) without which a validation says nothing


@dataclass(frozen=True)
class DataInfo:
    """What a model must know of the data it was fitted to. `scales` other than 1 are those of integer images."""

    frame_shapes: dict[str, tuple[int, ...]]
    scales: dict[str, float]
    control_dim: int | None
    n_control_values: int | None
    description: str

    @classmethod
    def of(cls, data: Sequences) -> "DataInfo":
        dim = values = None
        if data.controls is not None:
            if data.controls.ndim == 2:
                values = int(np.max(data.controls)) + 1
            else:
                dim = data.controls.shape[-1]
        scales = {name: data.modalities[name].scale for name in data.names}
        return cls(dict(data.frame_shapes), scales, dim, values, data.describe().replace("\n", "; "))

    @property
    def controlled(self) -> bool:
        return self.control_dim is not None or self.n_control_values is not None

    def convert(self, X: object, mask: object, controls: object, prefix: str = "") -> tuple[Sequences, list[str]]:
        """Data of a user for a fitted model: frames and controls must be as they were."""
        data, notes = as_sequences(X, mask=mask, controls=controls, frame_shapes=self.frame_shapes)
        check_controls(data, self.control_dim, self.n_control_values, f"{prefix}controls")
        return data, notes


@dataclass(frozen=True)
class Prepared:
    """The data of a fit. `window` is the number of frames of a training window, None for whole sequences."""

    data: Sequences
    held_out: Sequences | None
    info: DataInfo
    window: int | None = None
    notes: list[str] = field(default_factory=list)


def prepare(
    X: object,
    mask: object = None,
    controls: object = None,
    validation: object = None,
    validation_mask: object = None,
    validation_controls: object = None,
    *,
    frame_ndim: int | Mapping[str, int] | None = None,
) -> Prepared:
    """Convert a user's data, and those that the user held out."""
    data, notes = as_sequences(X, mask=mask, controls=controls, frame_ndim=frame_ndim)
    info, held_out = DataInfo.of(data), None
    if validation is not None:
        held_out, more = info.convert(validation, validation_mask, validation_controls, "validation_")
        notes += [f"validation: {note}" for note in more]
    return Prepared(data, held_out, info, None, notes)


def hold_out(prepared: Prepared, fraction: float, seed: int) -> Prepared:
    """Split off validation data, if there is enough for a validation to mean anything."""
    data, window = prepared.data, prepared.window
    if len(data) > 1:
        pieces = round(fraction * len(data)) * (1 if window is None else max(1, data.time // window))
    else:
        pieces = int(fraction * data.time) // (window or data.time)
    if pieces < FEWEST_HELD_OUT:
        return replace(prepared, notes=[*prepared.notes, "no validation: too few sequences to hold some out"])
    data, held_out = data.split(fraction, seed)
    return replace(prepared, data=data, held_out=held_out)
