"""`Dataset`: observations and ground truth."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
from jaxtyping import Shaped

SplitName = Literal["train", "validation", "test"]


@dataclass(frozen=True)
class Dataset:
    """Sequences with their ground truth.

    `states` holds all true states, `targets` those that a readout is scored on; each array is (n, t, d). `dt` is the
    time between frames in seconds, None if time has no unit. `parameters` are the true ones, if the model has any.
    """

    observations: Shaped[np.ndarray, "n t *frame"]
    states: dict[str, np.ndarray]
    targets: dict[str, np.ndarray]
    dt: float | None = None
    parameters: Mapping[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.observations.shape[0]
