"""The command `rpgssm`.

Each subcommand is a dataclass of settings, and `_run` maps its type to the function that does the work. That function
is imported only once the arguments have been understood, so that `rpgssm --help` answers at once.
"""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

import tyro

from rpgssm import __version__
from rpgssm.bench.config import BenchCoreConfig

_DESCRIPTION = """Learn latent dynamics from time series and video without reconstructing the observations (RP-GSSM).
`rpgssm COMMAND --help` explains a command; `rpgssm --version` prints the version."""

# tyro makes subcommands of a union only: the suppressed None stands in for the second member.
_Nothing = Annotated[None, tyro.conf.Suppress]


@dataclass(frozen=True)
class Bench:
    """Measure how fast the library is on this machine."""

    suite: Annotated[BenchCoreConfig, tyro.conf.subcommand("core", prefix_name=False)] | _Nothing


_Command = Annotated[Bench, tyro.conf.subcommand("bench")] | _Nothing


def _run(command: Bench | None) -> None:
    match command:
        case Bench(suite=BenchCoreConfig() as config):
            from rpgssm.bench.core import run

            run(config)


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command line; `argv` defaults to the arguments of the process."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments == ["--version"]:
        print(f"rpgssm {__version__}")
        return
    command = tyro.cli(
        _Command,
        prog="rpgssm",
        description=_DESCRIPTION,
        args=arguments or ["--help"],
        config=(tyro.conf.OmitArgPrefixes,),
    )
    try:
        _run(command)
    except (ValueError, FileNotFoundError) as error:
        # Raised as such, these two are how the library says that its input was wrong: the message is for the user,
        # the traceback is not. Anything else, their subclasses included, is a defect and keeps its traceback.
        if type(error) not in (ValueError, FileNotFoundError):
            raise
        print(f"rpgssm: error: {' '.join(str(error).split())}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
