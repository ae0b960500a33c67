"""Recordings with targets, in the form in which models are asked about them.

Inside, all sequences are as long as the longest. Targets are (N, T, d) arrays with NaN where they are not known: frames
that do not exist are among them, and so they never count.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int, Shaped

from rpgssm.data import Sequences
from rpgssm.data.arrays import is_list, to_array
from rpgssm.estimator import Estimator

from .latents import Smoother
from .regression import Targets


@dataclass(frozen=True)
class Labelled:
    """Observations, as `fit` takes them, and what else is known of their frames, by name.

    Each target is (N, T, d) or (N, T); for one long recording (T, d) or (T,); for ragged sequences a list of such
    arrays. NaN marks frames where a target is not known. For a mask and controls pass a `rpgssm.data.Recording` as
    observations.
    """

    observations: object
    targets: Mapping[str, object] | None = None


@dataclass(frozen=True)
class Part:
    """Sequences that a model can be asked about, and their targets."""

    observations: Shaped[np.ndarray, "n t *frame"] | Sequences
    targets: Targets

    @classmethod
    def of(cls, model: Smoother, data: object) -> "Part":
        """From a `Dataset`, a `Labelled`, or anything else with observations and perhaps targets; or observations."""
        if isinstance(data, Part):
            return data
        seen, targets = getattr(data, "observations", data), getattr(data, "targets", None)
        if isinstance(model, Estimator):
            converted = model._convert(seen, None, None)[0]
            return cls(converted, as_targets(targets, len(converted), converted.time, _lengths(converted)))
        seen = np.asarray(seen)
        return cls(seen, as_targets(targets, *seen.shape[:2]))

    def __len__(self) -> int:
        return len(self.observations)

    @property
    def time(self) -> int:
        x = self.observations
        return x.time if isinstance(x, Sequences) else x.shape[1]

    @property
    def lengths(self) -> Int[np.ndarray, " n"]:
        """How many frames of each sequence exist."""
        lengths = _lengths(self.observations) if isinstance(self.observations, Sequences) else None
        return np.full(len(self), self.time) if lengths is None else lengths

    def take(self, indices: Int[np.ndarray, " m"]) -> "Part":
        """The sequences with these indices, as long as the longest of them."""
        x = self.observations
        x = x.take(indices).trimmed() if isinstance(x, Sequences) else x[indices]
        time = x.time if isinstance(x, Sequences) else x.shape[1]
        return Part(x, {name: y[indices, :time] for name, y in self.targets.items()})

    def windows(self, indices: Int[np.ndarray, " m"], starts: Int[np.ndarray, " m"], length: int) -> "Part":
        """Windows of so many frames, each from the sequence and the frame that are given for it."""
        frames = starts[:, None] + np.arange(length)
        x = self.observations
        if isinstance(x, Sequences):
            x = x.window(starts.tolist(), length, indices.tolist()).trimmed()
        else:
            x = x[indices[:, None], frames]
        return Part(x, {name: y[indices[:, None], frames] for name, y in self.targets.items()})

    def first_frames(self, frames: int) -> "Part":
        """The first frames of each sequence."""
        x = self.observations
        x = x.window([0] * len(x), frames).trimmed() if isinstance(x, Sequences) else x[:, :frames]
        return Part(x, {name: y[:, :frames] for name, y in self.targets.items()})


def _lengths(data: Sequences) -> Int[np.ndarray, " n"] | None:
    return None if data.lengths is None else np.asarray(data.lengths)


def as_targets(
    targets: object, count: int, time: int, lengths: Int[np.ndarray, " n"] | None = None
) -> dict[str, Float[np.ndarray, "n t d"]]:
    """Convert the targets of `count` sequences of at most `time` frames; NaN where a frame does not exist."""
    if targets is None:
        return {}
    if not isinstance(targets, Mapping):
        raise ValueError('targets are not named: pass a mapping, such as {"speed": speed}')
    whole = np.full(count, time) if lengths is None else lengths
    return {str(name): _target(f"target {str(name)!r}", y, time, whole) for name, y in targets.items()}


def _target(label: str, given: object, time: int, lengths: Int[np.ndarray, " n"]) -> Float[np.ndarray, "n t d"]:
    count = len(lengths)
    if is_list(given):
        y = _from_rows(label, [to_array(f"{label}[{n}]", row) for n, row in enumerate(given)], time, lengths)
    else:
        y = to_array(label, given)
        if count == 1 and y.ndim in (1, 2) and y.shape[0] == time and y.shape[:2] != (1, time):
            y = y[None]
        if y.ndim == 2:
            y = y[..., None]
        if y.ndim != 3 or y.shape[:2] != (count, time):
            one = f", or ({time}, d) for the one recording" if count == 1 else ""
            raise ValueError(
                f"{label} has shape {np.shape(to_array(label, given))}, but the data has {count} "
                f"{'sequence' if count == 1 else 'sequences'} of {time} frames: pass one value or vector for each "
                f"frame, ({count}, {time}) or ({count}, {time}, d){one}, NaN where it is not known"
            )
    y = y if y.dtype in (np.float32, np.float64) else y.astype(np.float64)
    absent = np.arange(time) >= lengths[:, None]
    if absent.any():
        y = np.where(absent[..., None], np.nan, y)
    if (infinite := np.isinf(y).any(-1)).any():
        n, t = np.argwhere(infinite)[0]
        raise ValueError(f"{label} is infinite in sequence {n}, frame {t}: put NaN there if it is not known")
    return y


def _from_rows(
    label: str, rows: list[np.ndarray], time: int, lengths: Int[np.ndarray, " n"]
) -> Float[np.ndarray, "n t d"]:
    if len(rows) != len(lengths):
        raise ValueError(f"{label} has {len(rows)} sequences, but the data has {len(lengths)}: they must be the same")
    rows = [row[:, None] if row.ndim == 1 else row for row in rows]
    for n, (row, length) in enumerate(zip(rows, lengths, strict=True)):
        if row.ndim != 2 or len(row) != length or row.shape[1] != rows[0].shape[1]:
            raise ValueError(
                f"{label}[{n}] has shape {row.shape}, but sequence {n} of the data has {length} frames: pass one value "
                f"for each, ({length},), or vectors of equal length, ({length}, d)"
            )
    y = np.full((len(rows), time, rows[0].shape[1]), np.nan)
    for out, row in zip(y, rows, strict=True):
        out[: len(row)] = row
    return y
