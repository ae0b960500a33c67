"""The request for a task, from the registry to a family of tasks, and what the family makes of it."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rpgssm.datasets.dataset import SplitName

from .task import Split

BackgroundChoice = Literal["auto", "real", "procedural"]
Source = Literal["auto", "rendered", "video", "simulated"]


@dataclass(frozen=True)
class Request:
    """One task to make. `background` is settled by now: real files were found, or procedural ones were asked for.

    `variant` numbers the draw of backgrounds and pixel noise: other variants show the same motion.
    """

    name: str
    seed: int
    sizes: dict[SplitName, int]
    data_dir: Path | None = None
    background: str = "none"
    source: str = "none"
    variant: int = 0


@dataclass(frozen=True)
class Made:
    """The splits of a task and what else a `Task` needs."""

    splits: dict[str, Split]
    dt: float | None
    sources: dict[str, Any]
    scale: float = 1.0
    offset: float = 0.0
    secondary: tuple[str, ...] = ()
    parameters: dict[str, np.ndarray] = field(default_factory=dict)
