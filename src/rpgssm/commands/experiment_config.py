"""The settings of `rpgssm experiment`. Nothing heavy is imported here: help must come at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

Positional = tyro.conf.Positional
Name = Literal["accuracy"]


@dataclass(frozen=True)
class Which:
    """Which runs are meant."""

    tasks: str | None = None
    """Tasks, separated by commas. Default: all of the experiment."""

    methods: str | None = None
    """Methods, separated by commas. Default: all of the experiment."""

    seeds: str | None = None
    """Seeds, separated by commas. Default: those of the experiment."""

    background: Literal["auto", "real", "procedural"] = "auto"
    """Backgrounds of the distractor tasks."""

    max_steps: int | None = None
    """Train for so many steps instead, to try things out: results are then kept in the working folder."""


@dataclass(frozen=True)
class Places:
    """Where things are."""

    results: Path = Path("results")
    """Folder of the results: small files, one per run."""

    work: Path | None = None
    """Folder for what is needed on the way: checkpoints, fitted models. Default: in the user's cache."""


@dataclass(frozen=True)
class RunExperiment:
    """Do what is missing of an experiment. Started again it goes on where it stopped."""

    name: Positional[Name]
    """Which experiment. accuracy: the RP-GSSM with its recipes against the aims."""

    which: Annotated[Which, tyro.conf.arg(name="")] = Which()
    places: Annotated[Places, tyro.conf.arg(name="")] = Places()

    data_dir: Path | None = None
    """Folder with the real files (CIFAR-10, DAVIS, double pendulum). Default: RPGSSM_DATA."""

    checkpoint_every: int = 250
    """Steps between checkpoints: what is lost at most when a run is killed."""

    dry_run: bool = False
    """Show the list of runs and stop."""

    quiet: bool = False
    """Show no progress of the training."""


@dataclass(frozen=True)
class Status:
    """Show what of an experiment is done."""

    name: Positional[Name]
    """Which experiment."""

    which: Annotated[Which, tyro.conf.arg(name="")] = Which()
    places: Annotated[Places, tyro.conf.arg(name="")] = Places()


@dataclass(frozen=True)
class Table:
    """Print the table of accuracies against the aims, in Markdown, from stored results alone."""

    results: Path = Path("results")
    """Folder of the results."""

    insert: Path | None = None
    """Also put it into this file, between the markers <!-- accuracy --> and <!-- /accuracy -->."""


@dataclass(frozen=True)
class Experiment:
    """Run the experiments, and make tables and figures of their results."""

    action: (
        Annotated[RunExperiment, tyro.conf.subcommand("run", prefix_name=False)]
        | Annotated[Status, tyro.conf.subcommand("status", prefix_name=False)]
        | Annotated[Table, tyro.conf.subcommand("table", prefix_name=False)]
    )
