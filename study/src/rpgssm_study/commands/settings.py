"""The settings of the subcommands. Nothing heavy is imported here: help must come at once."""

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

    results: Path = Path("study/results")
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
    """Do what is missing of an experiment. Started again, it goes on where it stopped."""

    workers: int = 1
    """Processes that share the runs, each on cores of its own. 1: this process does all, and shows its progress."""

    scheduler: str | None = None
    """Address of a Dask scheduler (`dask scheduler`), whose workers (`dask worker ADDRESS --nthreads 1`) do the runs.
    They must see the folders of results, of work and of the data under the same names as this process."""

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
    """Show what of an experiment is done, and what is to come."""

    watch: bool = False
    """Keep showing it, until Ctrl-C."""


@dataclass(frozen=True)
class Table:
    """Print the tables of study/README.md, in Markdown, from stored results alone: accuracies against the aims, and all
    methods."""

    results: Path = Path("study/results")
    """Folder of the results."""

    insert: Path | None = None
    """Also put them into this file, between the markers <!-- accuracy --> and <!-- /accuracy -->, and between those of
    the same form for comparison."""


@dataclass(frozen=True)
class Report:
    """Make all figures and tables from stored results alone: PNG, SVG, and one HTML file that holds everything."""

    results: Path = Path("study/results")
    """Folder of the results."""

    output: Annotated[Path, tyro.conf.arg(aliases=["-o"])] = Path("report")
    """Folder for the report."""

    protocol: ProtocolName = "compact"
    """Which runs of the comparison."""


@dataclass(frozen=True)
class Tasks:
    """List the tasks, draw one (`tasks show NAME -o sheet.png`), or save its observations for `rpgssm fit`."""

    what: Positional[Literal["list", "show", "save"]] = "list"
    """list, show, or save."""

    name: Positional[str] = ""
    """Task to show or save."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Picture to write, default NAME.png; or folder for train.npy, validation.npy and test.npy, default NAME."""

    seed: int = 0
    """Seed of the data."""

    data_dir: Path | None = None
    """Folder with the real files (CIFAR-10, DAVIS, double pendulum). Default: RPGSSM_DATA."""

    background: Literal["auto", "real", "procedural"] = "auto"
    """Backgrounds of the distractor tasks."""


@dataclass(frozen=True)
class Evaluate:
    """Score a fitted model on one of the tasks: tables, JSON and figures."""

    run: Positional[Path]
    """Folder of the model."""

    task: str
    """Name of the task; `rpgssm-study tasks` lists them."""

    output: Annotated[Path | None, tyro.conf.arg(aliases=["-o"])] = None
    """Folder for evaluation.json and the figures. Default: RUN/evaluation-TASK."""

    seed: int = 0
    """Seed of the data."""

    data_dir: Path | None = None
    """Folder with the real files. Default: RPGSSM_DATA."""

    background: Literal["auto", "real", "procedural"] = "auto"
    """Backgrounds of the distractor tasks."""
