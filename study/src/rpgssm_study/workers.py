"""Do one run on a worker."""

import gc
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from . import store
from .estimates import duration
from .running import Interrupted
from .runs import Run

if sys.platform != "win32":
    import fcntl

Do = Callable[[Run], store.Result]

USUAL = (ValueError, OSError, ImportError, RuntimeError)  # all else is a defect: its traceback is printed


class Outcome(NamedTuple):
    """How a run ended, in a few words."""

    text: str
    failed: bool = False


def do_one(run: Run, do: Do, work: Path) -> Outcome:
    """Do a run, and say how it ended. Only an interruption is raised."""
    say(f"{run.identity} ...")
    try:
        with locked(work / run.identity):
            return Outcome(describe(do(run)))
    except Interrupted:
        raise
    except Exception as error:
        if not isinstance(error, USUAL):
            traceback.print_exception(error)
        return Outcome(f"{type(error).__name__}: {error}", failed=True)
    finally:
        forget()


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a working folder; wait while another process holds it. Its end, however it comes, is a release.

    Without the lock, two commands on one machine would write the same checkpoints, and so would a worker that lost its
    scheduler and the worker that has its run now. Windows and some network file systems have no such locks.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as file:
        if sys.platform != "win32":
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                say(f"another process works in {folder}: waiting for it")
                fcntl.flock(file, fcntl.LOCK_EX)
            except OSError:  # no locks here
                pass
        yield


def forget() -> None:
    """Free the memory of compiled functions. Those of many runs exceed it, or the number of regions it may have."""
    import jax

    jax.clear_caches()
    gc.collect()


def describe(result: store.Result) -> str:
    """A result in a few words."""
    if not result.finished:
        return f"diverged ({result.content['error']})"
    scores = ", ".join(f"{name} {value:.3f}" for name, value in result.scores["linear"].items())
    return f"R² {scores}; trained in {duration(result.training['seconds'])}"


def say(text: str) -> None:
    """Print with the time."""
    print(f"[{time.strftime('%H:%M:%S')}] {text}", flush=True)
