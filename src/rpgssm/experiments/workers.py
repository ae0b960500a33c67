"""A worker: takes runs from a queue and does them, until there are none."""

import gc
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from . import store
from .queues import Queue
from .repeats import ready
from .running import Interrupted
from .runs import Run

POLL = 5.0  # seconds between looks at the queue while others are at work
Do = Callable[[Run], store.Result]
Tell = Callable[[str], None]


def work_through(
    queue: Queue,
    runs: Sequence[Run],
    results: Path,
    do: Do,
    *,
    tell: Tell = print,
    poll: float = POLL,
    wait: bool = True,
) -> dict[str, str]:
    """Do runs until all have results, and say what went wrong with those that have none.

    While other workers have the rest in hand this one waits (unless `wait` is False), to take over from one that dies.
    A run that fails for another reason than divergence (a missing file, say) is left, and the next one is done.
    KeyboardInterrupt and `Interrupted` end the work, and the run goes back.
    """
    errors: dict[str, str] = {}
    while True:
        taken = queue.take()
        if taken is None:
            open_ = [run for run in ready(results, runs) if run.identity not in errors]
            if not open_ or not wait:
                return errors
            time.sleep(poll)
            continue
        tell(f"{taken.run.identity} ...")
        try:
            result = do(taken.run)
        except (KeyboardInterrupt, Interrupted):
            taken.give_back()
            raise
        except (ValueError, OSError, ImportError, RuntimeError) as error:
            errors[taken.run.identity] = f"{type(error).__name__}: {error}"
            taken.give_back(errors[taken.run.identity])
            tell(f"{taken.run.identity} failed: {error}")
            continue
        taken.finish(result)
        tell(f"{taken.run.identity}: {outcome(result)}")
        forget()


def forget() -> None:
    """Give back the memory of compiled functions: the next run has others, and a night of runs has more of them than
    memory, or the number of its regions that a process may have, can hold."""
    import jax

    jax.clear_caches()
    gc.collect()


def outcome(result: store.Result) -> str:
    """A result in a few words."""
    from .estimates import duration

    if not result.finished:
        return f"diverged ({result.content['error']})"
    scores = ", ".join(f"{name} {value:.3f}" for name, value in result.scores["linear"].items())
    return f"R² {scores}; trained in {duration(result.training['seconds'])}"
