"""Neurophysiology recordings in NWB files (extra `neuro`): series of numbers, and spikes as counts.

Every time series of numbers is a modality under its name, or its path if the name occurs twice. The sorted units are
one modality, `spikes`. Each has a clock of its own. `bin_seconds` brings them to common bins: means of the samples,
numbers of spikes, and missing frames where a series has no sample. With `trials` there is a sequence for each row of
the table of trials, else one for the time in which all chosen series run.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float, Int, Shaped
from numpy import ndarray

from .convert import Recording
from .video import optional

SPIKES = "spikes"
EXAMPLE = "bin_seconds=0.02 (--bin-seconds 0.02)"
SLACK = 1e-6  # fraction of a bin by which the last one may end after the recording


@dataclass(frozen=True)
class Series:
    """Samples and their times, sorted, in seconds; `load` reads samples from one index up to another."""

    name: str
    times: Float[ndarray, " t"]
    load: Callable[[int, int], Shaped[ndarray, "n ..."]]

    @property
    def span(self) -> tuple[float, float]:
        """Start of the first sample and end of the last."""
        step = np.median(np.diff(self.times)) if len(self.times) > 1 else 0.0
        return float(self.times[0]), float(self.times[-1] + step)

    def binned(self, edges: Float[ndarray, " e"]) -> Float[ndarray, "n ..."]:
        """Means of the samples between the edges; NaN where there is none."""
        first, last = self.within(*edges[[0, -1]])
        x = self.load(first, last)
        at, count = _bins(self.times[first:last], edges), len(edges) - 1
        valid = np.isfinite(x) if x.dtype.kind == "f" else np.ones(x.shape, bool)
        total, found = np.zeros((count, *x.shape[1:])), np.zeros((count, *x.shape[1:]))
        np.add.at(total, at, np.where(valid, x, 0))
        np.add.at(found, at, valid)
        return np.where(found > 0, total / np.maximum(found, 1), np.nan).astype(np.float32)

    def within(self, start: float, stop: float) -> tuple[int, int]:
        """The indices of the samples from one time up to another."""
        first, last = np.searchsorted(self.times, [start, stop])
        return int(first), int(last)


@dataclass(frozen=True)
class Spikes:
    """The times of the spikes of each unit."""

    units: list[Float[ndarray, " _"]]
    name: str = SPIKES

    @property
    def span(self) -> tuple[float, float]:
        fired = [unit for unit in self.units if len(unit)]
        if not fired:
            raise ValueError("the units have no spikes")
        return min(float(unit.min()) for unit in fired), max(float(unit.max()) for unit in fired)

    def binned(self, edges: Float[ndarray, " e"]) -> Float[ndarray, "n units"]:
        return np.stack([np.histogram(unit, edges)[0] for unit in self.units], -1).astype(np.float32)


def read_nwb(
    path: Path, *, key: Sequence[str] = (), bin_seconds: float | None = None, trials: bool = False
) -> Recording:
    """Read the chosen series (all if `key` is empty), one sequence or one for each trial."""
    if bin_seconds is not None and not (np.isfinite(bin_seconds) and bin_seconds > 0):
        raise ValueError(f"bin_seconds is {bin_seconds}, not a time above 0")
    with _opened(path) as file:
        chosen = _choose(path, _series(file) | _spikes(file), key)
        intervals = _trials(path, file) if trials else None
        if bin_seconds is None:
            return Recording(_as_sampled(path, chosen, intervals))
        if intervals is None:
            intervals = [_common_span(path, chosen)]
        edges = [_edges(path, n, interval, bin_seconds, trials) for n, interval in enumerate(intervals)]
        return Recording({one.name: [_with_features(one.binned(e)) for e in edges] for one in chosen})


@contextmanager
def _opened(path: Path):
    try:
        io = optional("pynwb", path, "neuro").NWBHDF5IO(str(path), "r", load_namespaces=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(f"{path} cannot be read as NWB: {error}") from None
    with io:
        yield io.read()


Found = dict[str, Callable[[], Any]]  # the contents of a file: names, and functions that make `Series` or `Spikes`


def _series(file: Any) -> Found:
    """All time series of numbers."""
    from pynwb import TimeSeries

    objects: list[Any] = [x for x in file.objects.values() if isinstance(x, TimeSeries) and _has_numbers(x)]
    twice = {name for name, count in Counter(x.name for x in objects).items() if count > 1}
    names = [_path(x) if x.name in twice else x.name for x in objects]

    def make(name: str, x: Any) -> Series:
        return Series(name, _times(x), lambda first, last: _values(x, first, last))

    return {name: partial(make, name, x) for name, x in zip(names, objects, strict=True)}


def _path(x: Any) -> str:
    """The path of names in the file."""
    parts = [x.name]
    while x.parent is not None and x.parent.parent is not None:
        x = x.parent
        parts.insert(0, x.name)
    return "/".join(parts)


def _has_numbers(x: Any) -> bool:
    shape, dtype = getattr(x.data, "shape", ()), getattr(x.data, "dtype", None)
    timed = x.timestamps is not None or x.rate is not None
    return timed and dtype is not None and np.dtype(dtype).kind in "biuf" and min(shape, default=0) > 0


def _times(x: Any) -> Float[ndarray, " t"]:
    if x.timestamps is not None:
        times = np.asarray(x.timestamps[:], np.float64)
        if not np.all(np.diff(times) >= 0):
            at = int(np.argmin(np.diff(times) >= 0)) + 1
            raise ValueError(f"the times of {x.name!r} do not rise: sample {at} is at {times[at]:g} s")
        return times
    return float(x.starting_time or 0) + np.arange(x.data.shape[0]) / float(x.rate)


def _values(x: Any, first: int, last: int) -> Shaped[ndarray, "n ..."]:
    """Samples in the unit that the file names; without a conversion they keep their dtype."""
    values = np.asarray(x.data[first:last])
    scale, offset = float(x.conversion), float(x.offset)
    return values if scale == 1 and offset == 0 else (values * scale + offset).astype(np.float32)


def _spikes(file: Any) -> Found:
    if file.units is None or "spike_times" not in file.units.colnames:
        return {}
    times = file.units["spike_times"]
    return {SPIKES: lambda: Spikes([np.asarray(times[n], np.float64) for n in range(len(file.units))])}


def _choose(path: Path, found: Found, key: Sequence[str]) -> list[Any]:
    if not found:
        raise ValueError(f"{path} holds no time series of numbers, and no spikes")
    for one in key:
        if one not in found:
            raise ValueError(f"{path} has no series {one!r}: it has {', '.join(sorted(found))}")
    return [found[name]() for name in (key or sorted(found))]


def _trials(path: Path, file: Any) -> list[tuple[float, float]]:
    if file.trials is None or not len(file.trials):
        raise ValueError(f"{path} has no table of trials: leave trials out, for one long sequence")
    starts, stops = (np.asarray(file.trials[name][:], np.float64) for name in ("start_time", "stop_time"))
    return list(zip(starts.tolist(), stops.tolist(), strict=True))


def _as_sampled(path: Path, chosen: list[Any], intervals: list[tuple[float, float]] | None) -> dict[str, Any]:
    """Series with the same clock, sample by sample."""
    if any(isinstance(one, Spikes) for one in chosen):
        others = ", ".join(one.name for one in chosen if one.name != SPIKES)
        instead = f", or choose others by key ({others})" if others else ""
        raise ValueError(f"spikes of {path} are events: count them in bins, as with {EXAMPLE}{instead}")
    first = chosen[0]
    for one in chosen[1:]:
        if len(one.times) != len(first.times) or not np.allclose(one.times, first.times, rtol=0, atol=1e-6):
            raise ValueError(
                f"{first.name!r} and {one.name!r} of {path} are not sampled at the same times ({_clock(first)}; "
                f"{_clock(one)}): choose one by key, or bring them to common bins, as with {EXAMPLE}"
            )
    if intervals is None:
        return {one.name: _with_features(one.load(0, len(one.times)))[None] for one in chosen}
    ranges = [first.within(*interval) for interval in intervals]
    for n, (begin, end) in enumerate(ranges):
        _check_length(path, n, end - begin)
    return {one.name: [_with_features(one.load(*each)) for each in ranges] for one in chosen}


def _clock(one: Series) -> str:
    start, stop = one.span
    return f"{one.name}: {len(one.times)} samples from {start:g} to {stop:g} s"


def _with_features(x: Shaped[ndarray, "..."]) -> Shaped[ndarray, "n ..."]:
    return x[:, None] if x.ndim == 1 else x


def _common_span(path: Path, chosen: list[Any]) -> tuple[float, float]:
    spans = [one.span for one in chosen]
    start, stop = max(span[0] for span in spans), min(span[1] for span in spans)
    if stop <= start:
        names = ", ".join(f"{one.name} {a:g} to {b:g} s" for one, (a, b) in zip(chosen, spans, strict=True))
        raise ValueError(f"the series of {path} have no time in common: {names}")
    return start, stop


def _edges(path: Path, n: int, interval: tuple[float, float], width: float, trials: bool) -> Float[ndarray, " e"]:
    count = int(np.floor((interval[1] - interval[0]) / width + SLACK))
    _check_length(path, n if trials else None, count)
    return interval[0] + width * np.arange(count + 1)


def _check_length(path: Path, trial: int | None, count: int) -> None:
    if count < 2:
        what = str(path) if trial is None else f"trial {trial} of {path}"
        raise ValueError(f"{what} has {count} frames, and needs 2: take shorter bins, or leave the trial out")


def _bins(times: Float[ndarray, " t"], edges: Float[ndarray, " e"]) -> Int[ndarray, " t"]:
    return np.clip(np.searchsorted(edges, times, side="right") - 1, 0, len(edges) - 2)
