"""Tasks: observations and ground truth, in three splits, with a record of how they were made.

Targets are only ever used for evaluation. Images without added noise stay 8-bit in memory (a tracking task is 0.9 GB as
it is); `Task.frames` turns them into the floating point numbers that the specification means.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from rpgssm.datasets.dataset import SplitName

SPLITS: tuple[SplitName, ...] = ("train", "validation", "test")


@dataclass(frozen=True)
class Split:
    """Sequences of one split. `states` holds all that is known of the world, `targets` what is scored."""

    observations: Shaped[np.ndarray, "n t *frame"]
    states: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]

    def __post_init__(self) -> None:
        n, t = self.observations.shape[:2]
        for kind in ("states", "targets"):
            for name, value in getattr(self, kind).items():
                if value.ndim != 3 or value.shape[:2] != (n, t):
                    raise ValueError(
                        f"{kind}[{name!r}] has shape {value.shape}, but {n} sequences of {t} frames were observed: "
                        f"it must be ({n}, {t}, d)"
                    )

    def __len__(self) -> int:
        return self.observations.shape[0]

    @property
    def time(self) -> int:
        return self.observations.shape[1]

    def first(self, n: int) -> "Split":
        """The first n sequences."""
        return Split(
            self.observations[:n],
            {k: v[:n] for k, v in self.states.items()},
            {k: v[:n] for k, v in self.targets.items()},
        )


@dataclass(frozen=True)
class Task:
    """A data set with its ground truth.

    `frames(x)` is `(x - offset) * scale`: 1/255 for 8-bit images, standardisation where the task asks for it. `dt` is
    the time between frames in seconds, None where time has no unit. `secondary` names targets that are reported but
    do not count in means. `parameters` are the true ones where there are such (the linear tasks). `description` can be
    written as JSON and goes with every result: sources, background, seed, version of the generator.
    """

    name: str
    train: Split
    validation: Split
    test: Split
    dt: float | None
    description: dict[str, Any]
    scale: float = 1.0
    offset: float = 0.0
    secondary: tuple[str, ...] = ()
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)

    @property
    def splits(self) -> dict[str, Split]:
        return {"train": self.train, "validation": self.validation, "test": self.test}

    @property
    def observations(self) -> dict[str, np.ndarray]:
        return {name: split.observations for name, split in self.splits.items()}

    @property
    def states(self) -> dict[str, dict[str, np.ndarray]]:
        return {name: split.states for name, split in self.splits.items()}

    @property
    def targets(self) -> dict[str, dict[str, np.ndarray]]:
        return {name: split.targets for name, split in self.splits.items()}

    @property
    def target_names(self) -> tuple[str, ...]:
        return tuple(self.train.targets)

    @property
    def frame_shape(self) -> tuple[int, ...]:
        return tuple(self.train.observations.shape[2:])

    def frames(self, observations: Shaped[np.ndarray, "*shape"]) -> Float[np.ndarray, "*shape"]:
        """Observations as 32-bit floating point numbers, scaled as the task says."""
        values = observations.astype(np.float32)
        if self.offset:
            values -= np.float32(self.offset)
        if self.scale != 1.0:
            values *= np.float32(self.scale)
        return values
