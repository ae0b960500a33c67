"""The command `rpgssm`.

Each subcommand is a dataclass of settings, and `_run` maps its type to the function that does the work. That function
is imported only once the arguments have been understood, so that `rpgssm --help` answers at once.
"""

import sys
from collections.abc import Sequence
from typing import Annotated, Any

import tyro

from rpgssm import __version__
from rpgssm.bench.config import Bench, BenchCoreConfig, BenchTrainConfig
from rpgssm.commands import config as c
from rpgssm.commands import experiment_config as e
from rpgssm.commands.methods import fit_command, named_method

_DESCRIPTION = """Learn latent dynamics from time series and video without reconstructing the observations (RP-GSSM).
`rpgssm COMMAND --help` explains a command; `rpgssm --version` prints the version."""


def _named(kind: type, name: str) -> Any:
    return Annotated[kind, tyro.conf.subcommand(name)]


def _command(fit: type[c.Fit]) -> Any:
    return (
        _named(c.Demo, "demo")
        | _named(fit, "fit")
        | _named(c.Transform, "transform")
        | _named(c.ForecastCommand, "forecast")
        | _named(c.Info, "info")
        | _named(c.Tasks, "tasks")
        | _named(c.Evaluate, "evaluate")
        | _named(e.Experiment, "experiment")
        | _named(Bench, "bench")
    )


def _run(command: object) -> None:
    match command:
        case Bench(suite=BenchCoreConfig() as config):
            from rpgssm.bench.core import run

            run(config)
        case Bench(suite=BenchTrainConfig() as config):
            from rpgssm.bench.train import run

            run(config)
        case c.Demo():
            from rpgssm.commands.demo import demo

            demo(command)
        case c.Fit():
            from rpgssm.commands.models import fit

            fit(command)
        case c.Transform():
            from rpgssm.commands.models import transform

            transform(command)
        case c.ForecastCommand():
            from rpgssm.commands.models import forecast

            forecast(command)
        case c.Info():
            from rpgssm.commands.models import info

            info(command)
        case c.Tasks():
            from rpgssm.commands.tasks import tasks

            tasks(command)
        case c.Evaluate():
            from rpgssm.commands.tasks import evaluate

            evaluate(command)
        case e.Experiment(action=action):
            from rpgssm.commands import experiment

            experiment.perform(action)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` defaults to the arguments of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        print(f"rpgssm {__version__}")
        return
    command = tyro.cli(
        _command(fit_command(named_method(arguments))),
        prog="rpgssm",
        description=_DESCRIPTION,
        args=arguments or ["--help"],
        config=(tyro.conf.OmitArgPrefixes,),
    )
    try:
        _run(command)
    except (ValueError, FileNotFoundError, ImportError) as error:
        # Raised as such, these are how the library says that its input was wrong, or that an optional package is
        # missing: the message is for the user, the traceback is not. Anything else, their subclasses included, is a
        # defect and keeps its traceback.
        if type(error) not in (ValueError, FileNotFoundError, ImportError):
            raise
        print(f"rpgssm: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
