"""What passes between the registry and the families: what is asked for, and what was made."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

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
    sizes: dict[str, int]
    data_dir: Path | None = None
    background: str = "none"
    source: str = "none"
    variant: int = 0


@dataclass(frozen=True)
class Made:
    """What a family returns: the splits and what else a `Task` needs."""

    splits: dict[str, Split]
    dt: float | None
    sources: dict[str, Any]
    scale: float = 1.0
    offset: float = 0.0
    secondary: tuple[str, ...] = ()
    parameters: dict[str, np.ndarray] = field(default_factory=dict)
