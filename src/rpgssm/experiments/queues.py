"""Handing out runs to workers that know nothing of each other.

All workers share the results, in which finished runs are seen, and the claims. With Optuna there is also a study in a
shared database (SQLite, a journal file, or any server that Optuna knows): runs wait in it as trials, workers on several
machines take them from it, and it can be looked at with Optuna's own tools. Without Optuna the list of runs is the
queue, and workers go down the list. Either way a run whose worker died is handed out again.
"""

import hashlib
import os
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from . import store
from .claims import Claim, Claims, lives, machine_mark
from .repeats import ready
from .runs import Run

LOCK = "the queue"  # claimed by whoever puts runs into it


@runtime_checkable
class Taken(Protocol):
    """A run in the hands of this worker, who must call one of `finish` and `give_back`."""

    run: Run

    def finish(self, result: store.Result) -> None: ...

    def give_back(self, error: str | None = None) -> None: ...


@runtime_checkable
class Queue(Protocol):
    """Where workers get runs from."""

    def take(self) -> Taken | None:
        """A run to do; None if there is none to be had now."""
        ...


class _Held:
    def __init__(self, run: Run, claim: Claim) -> None:
        self.run, self._claim = run, claim

    def finish(self, result: store.Result) -> None:
        del result
        self._claim.release()

    def give_back(self, error: str | None = None) -> None:
        del error
        self._claim.release()


class ListQueue:
    """The list of runs itself, in its order. What failed here is not tried again by this worker."""

    def __init__(self, runs: Sequence[Run], results: Path, claims: Claims) -> None:
        self._runs, self._results, self._claims = list(runs), results, claims
        self._tried: set[str] = set()

    def take(self) -> Taken | None:
        for run in ready(self._results, self._runs):
            if run.identity in self._tried:
                continue
            claim = self._claims.take(run.identity)
            if claim is None:
                continue
            if (self._results / run.path).is_file():  # done by another between the look and the claim
                claim.release()
                continue
            self._tried.add(run.identity)
            return _Held(run, claim)
        return None


class StudyQueue:
    """Trials of an Optuna study."""

    def __init__(self, runs: Sequence[Run], results: Path, claims: Claims, storage: Any, name: str) -> None:
        optuna = _optuna()
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        self._states = optuna.trial.TrialState
        self._runs = {run.identity: run for run in runs}
        self._results, self._claims = results, claims
        self._failed: set[str] = set()
        options: dict[str, Any] = {"direction": "maximize", "load_if_exists": True}
        while (lock := self._claims.take(LOCK)) is None:  # Optuna itself does not bear two that make a database at once
            time.sleep(0.1)
        try:
            self._study = optuna.create_study(study_name=name, storage=storage, **options)
        finally:
            lock.release()

    def take(self) -> Taken | None:
        self._fill()
        while self._waiting():
            trial = self._study.ask()
            run = self._runs.get(trial.user_attrs.get("run", ""))
            if run is None:  # of another plan, or nothing: another worker was quicker
                self._study.tell(trial, state=self._states.FAIL)
                continue
            claim = self._claims.take(run.identity)
            if claim is None or (self._results / run.path).is_file():
                self._study.tell(trial, state=self._states.FAIL)
                if claim is not None:
                    claim.release()
                continue
            return _Trial(self, trial, run, claim)
        return None

    def _waiting(self) -> list[Any]:
        trials = self._study.get_trials(deepcopy=False, states=(self._states.WAITING,))
        return [trial for trial in trials if trial.user_attrs.get("run") in self._runs]

    def _fill(self) -> None:
        """Put into the queue what is missing, can be done, and is neither in it nor in living hands."""
        lock = self._claims.take(LOCK)
        if lock is None:  # another worker is at it
            return
        try:
            states = self._states
            trials = self._study.get_trials(deepcopy=False, states=(states.WAITING, states.RUNNING))
            queued = set()
            for trial in trials:
                if trial.state == states.WAITING or self._lives(trial):
                    queued.add(trial.user_attrs.get("run"))
                else:
                    self._study.tell(trial.number, state=states.FAIL, skip_if_finished=True)
            for run in ready(self._results, self._runs.values()):
                if run.identity not in queued | self._failed:
                    about = {"run": run.identity, "task": run.task, "method": run.method, "seed": run.seed}
                    settings = {f"set {name}": value for name, value in run.settings.items()}
                    self._study.enqueue_trial({}, user_attrs=about | settings)
        finally:
            lock.release()

    def _lives(self, trial: Any) -> bool:
        told = trial.user_attrs
        if "beat" not in told:  # just taken, or its worker died at once
            return trial.datetime_start is None or time.time() - trial.datetime_start.timestamp() < self._claims.stale
        return lives(told["machine"], told["process"], told["beat"], self._claims.stale)


class _Trial:
    def __init__(self, queue: StudyQueue, trial: Any, run: Run, claim: Claim) -> None:
        self._queue, self._trial, self.run, self._claim = queue, trial, run, claim
        self._stop = threading.Event()
        trial.set_user_attr("machine", machine_mark())
        trial.set_user_attr("process", os.getpid())
        trial.set_user_attr("beat", time.time())
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def finish(self, result: store.Result) -> None:
        self._end()
        if result.finished:
            self._queue._study.tell(self._trial, result.selection, skip_if_finished=True)
        else:
            self._say("error", result.content["error"])
            self._queue._study.tell(self._trial, state=self._queue._states.FAIL, skip_if_finished=True)
        self._claim.release()

    def give_back(self, error: str | None = None) -> None:
        self._end()
        if error is not None:
            self._queue._failed.add(self.run.identity)
            self._say("error", error)
        self._queue._study.tell(self._trial, state=self._queue._states.FAIL, skip_if_finished=True)
        self._claim.release()

    def _end(self) -> None:
        self._stop.set()
        self._thread.join()

    def _keep(self) -> None:
        while not self._stop.wait(self._queue._claims.beat):
            if not self._say("beat", time.time()):
                return

    def _say(self, name: str, value: Any) -> bool:
        """Write it beside the trial, unless another worker took this one for dead and ended the trial."""
        try:
            self._trial.set_user_attr(name, value)
        except _optuna().exceptions.UpdateFinishedTrialError:
            return False
        return True


def open_queue(kind: str, runs: Sequence[Run], results: Path, work: Path, *, claims: Claims | None = None) -> Queue:
    """The queue of a kind: "list", "auto" (a study if Optuna is installed), or where the study is stored.

    That is a URL such as `sqlite:///queue.db` or `postgresql://...`, or a file for a journal (for folders that several
    machines share over a network).
    """
    claims = claims or Claims(work / "claims.db")
    if kind == "auto":
        try:
            _optuna()
        except ImportError:
            kind = "list"
        else:
            kind = f"sqlite:///{(work / 'queue.db').absolute()}"
    if kind == "list":
        return ListQueue(runs, results, claims)
    return StudyQueue(runs, results, claims, _storage(kind), study_name(runs))


def study_name(runs: Sequence[Run]) -> str:
    """Workers that were given the same runs share a study; others do not touch it."""
    kinds = "-".join(sorted({f"{run.experiment}-{run.protocol}" for run in runs}))
    digest = hashlib.sha256("\n".join(sorted(run.identity for run in runs)).encode()).hexdigest()[:8]
    return f"{kinds}-{digest}"


def _storage(kind: str) -> Any:
    if "://" in kind:
        return kind
    _optuna()
    from optuna.storages import JournalStorage
    from optuna.storages.journal import JournalFileBackend

    Path(kind).parent.mkdir(parents=True, exist_ok=True)
    return JournalStorage(JournalFileBackend(kind))


def _optuna() -> Any:
    try:
        import optuna
    except ImportError:
        raise ImportError(
            'a queue in a database needs optuna: pip install "rpgssm[sweep]", or use --queue list'
        ) from None
    return optuna
