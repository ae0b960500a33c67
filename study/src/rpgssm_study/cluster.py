"""Do the runs of a plan: one after the other in this process, or on the workers of a Dask cluster.

The file with a result is the only bookkeeping: a run that has one is not done again. Runs are submitted in the order of
the plan, at most as many as there are workers, so that `repeats` sees all results there are. If a worker process dies,
Dask gives its run to another worker, which resumes it from its last checkpoint. Once four workers have died of a run it
is given up (`allowed-failures` of Dask, by default 3).
"""

import contextlib
import logging
import os
import signal
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import CancelledError
from pathlib import Path
from typing import cast

from dask import config
from distributed import Client, Future, LocalCluster, Worker, WorkerPlugin, wait
from distributed.comm.core import CommClosedError

from .repeats import ready
from .runs import Run
from .workers import Do, Outcome, do_one, say

POLL = 5.0  # seconds after which workers that joined the cluster get something to do
SYNC = 60.0  # seconds in which a file that another machine wrote to a shared folder must appear here


def run_all(
    runs: Sequence[Run], results: Path, work: Path, do: Do, *, workers: int = 1, scheduler: str | None = None
) -> dict[str, str]:
    """Do all runs that have no result, and return the errors of those that failed, by identity.

    One worker, without the address of a scheduler, is this process.
    """
    errors: dict[str, str] = {}

    def waiting() -> list[Run]:
        return [run for run in ready(results, runs) if run.identity not in errors]

    def finish(run: Run, outcome: Outcome) -> None:
        if not outcome.failed and not _appears(results / run.path, 0.0 if scheduler is None else SYNC):
            outcome = Outcome(f"no result in {results}: all workers must see this folder", failed=True)
        if outcome.failed:
            errors[run.identity] = outcome.text
        say(f"{run.identity}{' failed' if outcome.failed else ''}: {outcome.text}")

    if workers == 1 and scheduler is None:
        while left := waiting():
            finish(left[0], do_one(left[0], do, work))
        return errors

    if not waiting():
        return errors
    with connect(workers, scheduler) as client:
        at_work: dict[Future, Run] = {}
        while True:
            left = [run for run in waiting() if run not in at_work.values()]
            free = sum(cast("dict[str, int]", client.nthreads()).values()) - len(at_work)
            for run in left[: max(0, free)]:
                # The place of the result is the key of the task: commands with the same plan share tasks.
                key = str((results / run.path).absolute())
                at_work[client.submit(do_one, run, do, work, key=key)] = run
            if not at_work and not left:
                return errors
            for future in _ended(list(at_work)):
                finish(at_work.pop(future), _outcome(future))
                future.release()  # the scheduler forgets the outcome: a run that failed can be tried again


@contextlib.contextmanager
def connect(workers: int, scheduler: str | None) -> Iterator[Client]:
    """A client of a scheduler that somebody started, or of a cluster on this machine that ends with the context."""
    with contextlib.ExitStack() as stack:
        if scheduler is None:
            # Workers get the environment of the command, as it is: Dask would allow them one thread of BLAS.
            stack.enter_context(config.set({"distributed.nanny.pre-spawn-environ": {}}))
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address="127.0.0.1:0",
            )
            stack.enter_context(cluster)
            client = stack.enter_context(Client(cluster, set_as_default=False))
            client.register_plugin(LocalWorker(workers))
        else:
            try:
                client = stack.enter_context(Client(scheduler, set_as_default=False))
            except (OSError, ValueError) as error:
                raise ValueError(f"no scheduler answers at {scheduler}: {error}") from None
        stack.enter_context(client.as_current())
        try:
            yield client
        except KeyboardInterrupt:
            logging.getLogger("distributed.nanny").setLevel(logging.ERROR)  # it warns that it kills workers
            raise
        except (CancelledError, CommClosedError):
            raise ValueError(f"the scheduler at {scheduler} is gone; with another, the command goes on") from None


class LocalWorker(WorkerPlugin):
    """Prepare a worker process of this machine.

    Give it cores of its own, where the system can: on shared ones workers slow each other down, and stored times with
    them. Ctrl-C and SIGTERM, which reach all processes of a terminal or a job, are for the command, which ends its
    workers.
    """

    def __init__(self, workers: int) -> None:
        self.workers = workers

    def setup(self, worker: Worker) -> None:
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        logging.getLogger("distributed.worker.state_machine").setLevel(logging.ERROR)  # it warns that a run is cut off
        threads = Path("/proc/self/task")
        if not threads.is_dir():  # not Linux
            return
        cores = sorted(os.sched_getaffinity(0))
        if self.workers <= len(cores):
            for thread in threads.iterdir():  # later threads have the cores of those that start them
                with contextlib.suppress(ProcessLookupError):
                    os.sched_setaffinity(int(thread.name), cores[int(worker.name) :: self.workers])


def _ended(futures: list[Future]) -> set[Future]:
    """Those that ended; none if that takes longer than `POLL`."""
    if not futures:  # there is no worker yet
        time.sleep(POLL)
        return set()
    try:
        return wait(futures, timeout=POLL, return_when="FIRST_COMPLETED").done  # pyright: ignore[reportAttributeAccessIssue]
    except TimeoutError:
        return set()


def _outcome(future: Future) -> Outcome:
    if (error := future.exception()) is None:
        return future.result()
    return Outcome(f"{type(error).__name__}: {error}", failed=True)


def _appears(path: Path, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while not path.is_file():
        if time.monotonic() > end:
            return False
        time.sleep(1.0)
    return True
