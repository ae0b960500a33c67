"""All tasks by name."""

import os
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, Literal

import numpy as np
from jaxtyping import Shaped

from . import cache as _cache
from . import double_pendulum, linear, pendulum, tracking
from .files import CIFAR10, DAVIS, MARKERS, VIDEOS, Collection, data_directory, fingerprint
from .recipe import BackgroundChoice, Made, Request, Source
from .task import SPLITS, SplitName, Task


@dataclass(frozen=True)
class Entry:
    """A task in the list: who makes it, how many sequences it has, and what it reads."""

    name: str
    summary: str
    family: ModuleType
    sizes: tuple[int, int, int] = (500, 100, 100)
    background: Collection | None = None
    recorded: bool = False


def _linear(name: str) -> Entry:
    k, d = linear.SIZES[name]
    return Entry(name, f"{k} latents seen through {d} linear observations", linear, (200, 50, 50))


_ENTRIES = (
    *map(_linear, linear.SIZES),
    Entry("pendulum-vector", "sine and cosine of a pendulum's angle, with noise: for quick work", pendulum),
    Entry("pendulum", "24×24 images of a pendulum, with noise", pendulum),
    Entry("pendulum-64", "the same with only its first 64 training sequences", pendulum, (64, 100, 100)),
    Entry("cifar10-pendulum", "a pendulum before a new image in each frame (CIFAR-10)", pendulum, background=CIFAR10),
    Entry("double-pendulum", "50×50 images of recorded double pendulums", double_pendulum, (376, 100, 100), None, True),
    Entry(
        "cifar10-double-pendulum",
        "double pendulums before a new image in each frame (CIFAR-10)",
        double_pendulum,
        (376, 100, 100),
        CIFAR10,
        True,
    ),
    Entry("tracking", "64×64 colour video of a rat in a box", tracking),
    Entry("davis-tracking", "the rat over pieces of video clips (DAVIS)", tracking, background=DAVIS),
)
TASKS: dict[str, Entry] = {entry.name: entry for entry in _ENTRIES}


def task_names() -> tuple[str, ...]:
    """The names that `load_task` knows."""
    return tuple(TASKS)


def load_task(
    name: str,
    *,
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    background: BackgroundChoice = "auto",
    source: Source = "auto",
    n_train: int | None = None,
    n_validation: int | None = None,
    n_test: int | None = None,
    cache: bool = True,
) -> Task:
    """Make a task, or read it from the cache.

    Deterministic in `seed`; with fewer sequences one gets the first of the larger set. Real files are looked for in
    `data_dir`, else in the directory that the environment variable `RPGSSM_DATA` names. `background` matters to the
    tasks with a distractor: "auto" and "real" need the real images or clips and say what to do if they are missing,
    "procedural" makes textures instead. `source` matters to the double pendulum: "rendered" (and "auto") draws the
    recorded motion, "video" decodes the recorded video, "simulated" needs no files.
    """
    entry = _entry(name)
    asked = dict(zip(SPLITS, (n_train, n_validation, n_test), strict=True))
    sizes: dict[SplitName, int] = {
        s: usual if asked[s] is None else int(asked[s] or 0) for s, usual in zip(SPLITS, entry.sizes, strict=True)
    }
    for split, n in sizes.items():
        if n < 1:
            raise ValueError(f"n_{split} must be at least 1, but is {n}")
    request, key = _settle(entry, seed, data_dir, background, source, sizes)
    made = _cache.load(key) if cache else None
    if made is None:
        made = entry.family.build(request)
        if cache:
            _cache.store(key, made)
    return _task(entry, request, made, key)


def background_variants(
    name: str,
    *,
    variants: int = 5,
    n: int = 20,
    split: Literal["train", "validation", "test"] = "test",
    seed: int = 0,
    data_dir: str | os.PathLike[str] | None = None,
    background: BackgroundChoice = "auto",
    source: Source = "auto",
) -> Shaped[np.ndarray, "variants n t *frame"]:
    """The same `n` trajectories under several draws of background and noise; the first is that of `load_task`."""
    entry = _entry(name)
    if name.startswith("linear") or name in ("double-pendulum", "tracking"):
        raise ValueError(f"{name} has neither backgrounds nor pixel noise to vary")
    request, _ = _settle(entry, seed, data_dir, background, source, {split: n})
    draws = []
    for variant in range(variants):
        made = entry.family.build(Request(**{**request.__dict__, "variant": variant}))
        draws.append(made.splits[split].observations)
    return np.stack(draws)


def _entry(name: str) -> Entry:
    if name not in TASKS:
        raise ValueError(f"there is no task {name!r}; choose one of {', '.join(TASKS)}")
    return TASKS[name]


def _settle(
    entry: Entry,
    seed: int,
    data_dir: str | os.PathLike[str] | None,
    background: str,
    source: str,
    sizes: dict[SplitName, int],
) -> tuple[Request, dict[str, Any]]:
    """Decide on files and background, and collect all that the result depends on."""
    _one_of("background", background, ("auto", "real", "procedural"))
    _one_of("source", source, ("auto", "rendered", "video", "simulated"))
    if source != "auto" and not entry.recorded:
        raise ValueError(f"source={source!r} is for the double pendulum only; leave it out for {entry.name}")
    files: list[Path] = []
    directory = data_directory(data_dir) if entry.background or entry.recorded else None
    used = "none"
    if entry.background is not None:
        if background == "procedural":
            used = "procedural"
        else:
            files += entry.background.need(directory)
            used = "davis" if entry.background is DAVIS else "cifar10"
    elif background == "procedural":
        raise ValueError(f"{entry.name} has no background: leave background='procedural' out")
    settled = "none"
    if entry.recorded:
        settled = "rendered" if source == "auto" else source
        if settled != "simulated":
            files += MARKERS.need(directory)
        if settled == "video":
            files += VIDEOS.need(directory)
    request = Request(entry.name, seed, sizes, directory, used, settled)
    key = {
        "name": entry.name,
        "seed": seed,
        "sizes": sizes,
        "background": used,
        "source": settled,
        "files": fingerprint(files, directory) if files and directory else "none",
        "generator_version": entry.family.VERSION,
    }
    return request, key


def _one_of(what: str, value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{what} must be one of {', '.join(map(repr, allowed))}, not {value!r}")


def _task(entry: Entry, request: Request, made: Made, key: dict[str, Any]) -> Task:
    description = {
        "task": entry.name,
        "summary": entry.summary,
        "seed": request.seed,
        "sizes": dict(request.sizes),
        "background": request.background,
        "source": request.source,
        "generator_version": key["generator_version"],
        "sources": made.sources,
    }
    return Task(
        name=entry.name,
        **made.splits,
        dt=made.dt,
        description=description,
        scale=made.scale,
        offset=made.offset,
        secondary=made.secondary,
        parameters=made.parameters,
    )
