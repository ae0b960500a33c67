"""The settings of `rpgssm experiment`. Nothing heavy is imported here: help must come at once."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

import tyro

Positional = tyro.conf.Positional
Name = Literal["accuracy", "comparison"]
ProtocolName = Literal["compact", "paper"]


@dataclass(frozen=True)
class Which:
    """Which runs are meant."""

    protocol: ProtocolName = "compact"
    """Settings of the comparison. compact: for two cores and a night; paper: as published, for a GPU."""

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
class _Chosen:
    """Runs of an experiment, and where they are."""

    name: Positional[Name]
    """accuracy: the RP-GSSM with its recipes against the aims. comparison: all methods on all tasks."""

    which: Annotated[Which, tyro.conf.arg(name="")] = Which()
    places: Annotated[Places, tyro.conf.arg(name="")] = Places()


@dataclass(frozen=True)
class _OnData(_Chosen):
    """The same, with the data of the tasks."""

    data_dir: Path | None = None
    """Folder with the real files (CIFAR-10, DAVIS, double pendulum). Default: RPGSSM_DATA."""


@dataclass(frozen=True)
class RunExperiment(_OnData):
    """Do what is missing of an experiment. Started again it goes on where it stopped; started twice, both share it."""

    workers: int = 1
    """Processes that share the work, and the cores."""

    queue: str = "auto"
    """What hands out the runs: list (the results and a file of claims), or a study of Optuna in a database: its URL, or
    a file for a journal. auto: a study in the working folder if Optuna is installed, else list."""

    wait: bool = True
    """Stay until all is done, to take over from workers that die."""

    checkpoint_every: int = 250
    """Steps between checkpoints: what is lost at most when a run is killed."""

    dry_run: bool = False
    """Show the list of runs and stop."""

    quiet: bool = False
    """Show no progress of the training."""


@dataclass(frozen=True)
class Rescore(_OnData):
    """Score the fitted models of finished runs anew, without training: for when the evaluation has changed."""


@dataclass(frozen=True)
class Status(_Chosen):
    """Show what of an experiment is done, at work, and to come."""

    watch: bool = False
    """Keep showing it, until Ctrl-C."""


@dataclass(frozen=True)
class Table:
    """Print the tables of the README, in Markdown, from stored results alone: accuracies against the aims, and all
    methods."""

    results: Path = Path("results")
    """Folder of the results."""

    insert: Path | None = None
    """Also put them into this file, between the markers <!-- accuracy --> and <!-- /accuracy -->, and between those of
    the same form for comparison."""


@dataclass(frozen=True)
class Report:
    """Make all figures and tables from stored results alone: PNG, SVG, and one HTML file that holds everything."""

    results: Path = Path("results")
    """Folder of the results."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report")
    """Folder for the report."""

    protocol: ProtocolName = "compact"
    """Which runs of the comparison."""


@dataclass(frozen=True)
class Experiment:
    """Run the experiments, and make tables and figures of their results."""

    action: (
        Annotated[RunExperiment, tyro.conf.subcommand("run", prefix_name=False)]
        | Annotated[Rescore, tyro.conf.subcommand("rescore", prefix_name=False)]
        | Annotated[Status, tyro.conf.subcommand("status", prefix_name=False)]
        | Annotated[Table, tyro.conf.subcommand("table", prefix_name=False)]
        | Annotated[Report, tyro.conf.subcommand("report", prefix_name=False)]
    )
