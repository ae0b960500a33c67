"""What can be set for each benchmark.

Kept apart from the benchmarks so that the command line can show its help without importing JAX.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro


@dataclass(frozen=True)
class BenchCoreConfig:
    """Time the core (filter, smoother, free energy and its gradient) against other implementations."""

    small: bool = False
    """Small problems and few repeats: seconds instead of minutes."""

    output: Path | None = None
    """Also write the results to this JSON file."""

    cases: tuple[str, ...] = ()
    """Run only these cases; all of them if none is named."""

    repeats: int = 30
    """Timed repetitions per case."""


@dataclass(frozen=True)
class BenchTrainConfig:
    """Time one training step on images against forward and backward pass of its encoder alone."""

    output: Path | None = None
    """Also write the results to this JSON file."""

    encoders: tuple[str, ...] = ("cnn", "cnn-paper")
    """Encoders to time."""

    repeats: int = 10
    """Timed repetitions."""


@dataclass(frozen=True)
class Bench:
    """Measure how fast the library is on this machine."""

    suite: (
        Annotated[BenchCoreConfig, tyro.conf.subcommand("core", prefix_name=False)]
        | Annotated[BenchTrainConfig, tyro.conf.subcommand("train", prefix_name=False)]
    )
