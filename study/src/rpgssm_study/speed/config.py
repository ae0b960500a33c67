"""The options of each measurement of speed.

They are apart from the measurements so that the command line can show its help without importing JAX.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from rpgssm_study.methods import METHODS


@dataclass(frozen=True)
class SpeedCore:
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
class SpeedTrain:
    """Time training steps: on images beside the encoder alone, and of every compared method on four tasks."""

    output: Path | None = None
    """Also write the results to this JSON file. Parts of it that are not measured now stay as they are."""

    figure: Path | None = None
    """Also draw the times of the methods, as this PNG file."""

    encoders: tuple[str, ...] = ("cnn", "cnn-paper")
    """Encoders to time a step of the RP-GSSM with, and alone. None named: this part is left out."""

    methods: tuple[str, ...] = tuple(METHODS)
    """Methods to compare. None named: this part is left out."""

    tasks: tuple[str, ...] = ("linear-small", "linear-medium", "linear-large", "pendulum")
    """Tasks to compare them on."""

    mask_size: int = 20
    """Frames hidden from each sequence by methods that train with masks. 0: none."""

    repeats: int = 10
    """Turns of each."""


@dataclass(frozen=True)
class Speed:
    """Measure how fast the library is on this machine."""

    suite: (
        Annotated[SpeedCore, tyro.conf.subcommand("core", prefix_name=False)]
        | Annotated[SpeedTrain, tyro.conf.subcommand("train", prefix_name=False)]
    )
