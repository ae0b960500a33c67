"""The command `rpgssm-study`.

Each subcommand is a dataclass of settings. The function that does the work is imported only once the arguments have
been understood, so that `rpgssm-study --help` answers at once.
"""

import sys
from collections.abc import Sequence
from typing import Annotated

import tyro

from rpgssm_study.commands import settings as s
from rpgssm_study.speed.config import Speed, SpeedCore, SpeedTrain

_DESCRIPTION = """Compare the methods of rpgssm on tasks with known truth, and measure their speed.
`rpgssm-study COMMAND --help` explains a command. Run it from the root of the repository: results are in study/."""

_COMMAND = (
    Annotated[s.Tasks, tyro.conf.subcommand("tasks")]
    | Annotated[s.Evaluate, tyro.conf.subcommand("evaluate")]
    | Annotated[s.RunExperiment, tyro.conf.subcommand("run")]
    | Annotated[s.Rescore, tyro.conf.subcommand("rescore")]
    | Annotated[s.Status, tyro.conf.subcommand("status")]
    | Annotated[s.Table, tyro.conf.subcommand("table")]
    | Annotated[s.Report, tyro.conf.subcommand("report")]
    | Annotated[Speed, tyro.conf.subcommand("speed")]
)


def _run(command: object) -> None:
    match command:
        case Speed(suite=SpeedCore() as config):
            from rpgssm_study.speed.core import run

            run(config)
        case Speed(suite=SpeedTrain() as config):
            from rpgssm_study.speed.train import run

            run(config)
        case s.Tasks():
            from rpgssm_study.commands.scoring_tasks import tasks

            tasks(command)
        case s.Evaluate():
            from rpgssm_study.commands.scoring_tasks import evaluate

            evaluate(command)
        case _:
            from rpgssm_study.commands import experiments

            experiments.perform(command)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` defaults to the arguments of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    command = tyro.cli(
        _COMMAND,  # pyright: ignore[reportArgumentType]
        prog="rpgssm-study",
        description=_DESCRIPTION,
        args=arguments or ["--help"],
        config=(tyro.conf.OmitArgPrefixes,),
    )
    try:
        _run(command)
    except (ValueError, FileNotFoundError, ImportError) as error:
        # these mean that the input was wrong; their subclasses, and all else, are defects and keep their traceback
        if type(error) not in (ValueError, FileNotFoundError, ImportError):
            raise
        print(f"rpgssm-study: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
