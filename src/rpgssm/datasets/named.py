"""Data sets by name, for the command line."""

from collections.abc import Callable
from functools import partial

from .dataset import Dataset, SplitName
from .linear_systems import linear
from .pendulums import pendulum

_IMAGES, _SYSTEMS = {"train": 500, "validation": 100, "test": 100}, {"train": 200, "validation": 50, "test": 50}
_NAMED: dict[str, tuple[Callable[..., Dataset], dict[str, int]]] = {
    "pendulum": (pendulum, _IMAGES),
    "pendulum-textures": (partial(pendulum, background="textures"), _IMAGES),
    "pendulum-direction": (partial(pendulum, view="direction"), _IMAGES),
    "linear-small": (partial(linear, size="small"), _SYSTEMS),
    "linear-medium": (partial(linear, size="medium"), _SYSTEMS),
    "linear-large": (partial(linear, size="large"), _SYSTEMS),
}


def dataset_names() -> tuple[str, ...]:
    """The names that `load_dataset` knows."""
    return tuple(_NAMED)


def load_dataset(name: str, split: SplitName = "train", *, n: int | None = None, seed: int = 0) -> Dataset:
    """One split of a data set. `n` is the number of sequences."""
    if name not in _NAMED:
        raise ValueError(f"there is no data set {name!r}; choose one of {', '.join(_NAMED)}")
    make, sizes = _NAMED[name]
    if split not in sizes:
        raise ValueError(f"there is no split {split!r}: data sets have {', '.join(sizes)}")
    return make(sizes[split] if n is None else n, split=split, seed=seed)
