"""The state of one model in training on the host: its history, its best parameters so far, its checkpoints."""

import json
import math
import warnings
from collections.abc import Mapping
from dataclasses import InitVar, dataclass, replace
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from rpgssm.settings import differences

from .checkpoint import TABLE, Checkpoints
from .config import Training
from .errors import TrainingDiverged
from .history import History
from .optimizer import path_name
from .program import Attempt
from .state import TrainingState, from_arrays, to_arrays

M = TypeVar("M")
Stopped = Literal["max_steps", "early", "interrupted", "diverged", "converged"]


@dataclass(frozen=True)
class Best:
    """The parameters with the lowest validation loss, and their step."""

    params: PyTree
    step: int
    loss: float


@dataclass(frozen=True)
class Record:
    """Everything that a dispatch changes, replaced as a whole: an interrupt finds the old or the new record.

    The first `rows` of the history are valid; `waiting` is the number of validations since the best one.
    """

    rows: int = 0
    best: Best | None = None
    waiting: int = 0
    stopped: Stopped | None = None
    error: TrainingDiverged | None = None


@dataclass(frozen=True)
class Trained(Generic[M]):
    """The result of training.

    `model` is the one of the best validation (step `best_step`), or the last one if there was no validation or
    `keep_best` is False. `last_model` is the one of the last step, `step`. `stopped` is the reason of the end.
    `interrupted` is True if the user interrupted, be it after the last step or after this one of several models.
    "diverged", with an `error`, only occurs when several models are trained at once; `train` raises the error.
    """

    model: M
    last_model: M
    best_step: int
    step: int
    history: History
    stopped: Stopped
    error: TrainingDiverged | None = None
    interrupted: bool = False


@dataclass(eq=False)
class Run:
    """One model in training."""

    static: PyTree
    settings: Training
    log_every: int
    names: InitVar[list[str]]
    identity: Mapping[str, Any]
    program: Mapping[str, Any]
    directory: Path | None

    def __post_init__(self, names: list[str]) -> None:
        self.history, self.record = History(names), Record()
        self.checkpoints = None if self.directory is None else Checkpoints(self.directory)

    def recorded(
        self,
        state: TrainingState,
        start: int,
        rows: Mapping[str, np.ndarray],
        validation: Mapping[str, Any] | None,
        times,
    ) -> Record:
        """The record after a dispatch that began at step `start`. Adds rows to the history."""
        record, end, max_steps = self.record, int(state.step), self.settings.max_steps
        self.history.truncate(record.rows)
        for i in range(end - start):
            step = start + i + 1
            due = step % self.log_every == 0 or step == max_steps
            if due or (validation is not None and step == end):
                row: dict[str, float] = {"step": float(step)} | {name: float(x[i]) for name, x in rows.items()} | times
                if validation is not None and step == end:
                    row |= {_validation_name(name): float(x) for name, x in validation.items()}
                self.history.append(row)
        record = replace(record, rows=len(self.history))
        if validation is not None:
            loss = float(validation["loss"])
            if math.isfinite(loss) and (record.best is None or loss < record.best.loss):
                record = replace(record, best=Best(state.params, end, loss), waiting=0)
            else:
                record = replace(record, waiting=record.waiting + 1)
        return replace(record, stopped=self._why_stop(record, end))

    def _why_stop(self, record: Record, step: int) -> Stopped | None:
        patience = self.settings.stopping.patience
        if patience is not None and record.waiting >= patience:
            return "early"
        return "max_steps" if step >= self.settings.max_steps else None

    def write_history(self, first: int) -> None:
        if self.directory is not None:
            self.history.append_to_csv(self.directory / TABLE, first)

    def save(self, state: TrainingState, seconds: float) -> None:
        """Write a checkpoint."""
        if self.checkpoints is None:
            return
        best = self.record.best
        arrays = to_arrays(state, "state") | {"history": self.history.to_array()}
        if best is not None:
            arrays |= to_arrays(best.params, "best")
        meta = {
            "identity": dict(self.identity),
            "program": dict(self.program),
            "columns": self.history.names,
            "best": None if best is None else {"step": best.step, "loss": best.loss},
            "waiting": self.record.waiting,
            "diverged": self.record.stopped == "diverged",
            "seconds": seconds,
        }
        self.checkpoints.save(int(state.step), arrays, meta)

    def restore(self, step: int, template: TrainingState) -> tuple[TrainingState, float]:
        """Restore the checkpoint of a step: its state, and the seconds so far. Raises ValueError for another run."""
        assert self.checkpoints is not None
        arrays, meta = self.checkpoints.load(step)
        where = f"Cannot resume the run in {self.directory}"
        wrong = differences(json.loads(json.dumps(self.identity)), meta["identity"])
        if wrong:
            raise ValueError(f"{where}: {'; '.join(wrong)}. Use the settings and data it was started with.")
        if tuple(meta["columns"]) != self.history.names:
            raise ValueError(
                f"{where}: the terms of the objective are {', '.join(self.history.names)} and were "
                f"{', '.join(meta['columns'])}."
            )
        try:
            state = from_arrays(template, "state", arrays)
            best = None
            if meta["best"] is not None:
                best = Best(from_arrays(template.params, "best", arrays), meta["best"]["step"], meta["best"]["loss"])
        except ValueError as error:
            raise ValueError(f"{where}: the model is another one. {error}.") from None
        self._check_program(where, meta["program"])
        self.history = History(meta["columns"], arrays["history"])
        record = Record(len(self.history), best, meta["waiting"])
        stopped = "diverged" if meta["diverged"] else self._why_stop(record, step)
        self.record = replace(record, stopped=stopped)
        return state, meta["seconds"]

    def _check_program(self, where: str, before: Mapping[str, Any]) -> None:
        """Raise for a changed training step that settings and data do not show: the user's own code differs."""
        now = self.program
        others = [f"{name} {before[name]}" for name in now if name != "digest" and now[name] != before[name]]
        if others:
            warnings.warn(
                f"The run in {self.directory} was begun with {', '.join(others)}: it goes on, but its numbers may "
                "differ in the last digits from those of a run that was not interrupted.",
                stacklevel=2,
            )
        elif now["digest"] != before["digest"]:
            raise ValueError(
                f"{where}: its training step is another one, although the settings and the data are the same. Has an "
                "encoder, an objective or another function of your own changed? Use the one it was started with, or "
                "start afresh with overwrite=True."
            )

    def fail(self, state: TrainingState, attempt: Attempt) -> TrainingDiverged:
        """The error that describes a failed step; `state` is from before it."""
        step = int(state.step) + 1
        parts, terms, sequences = _what_failed(attempt)
        known = bool(sequences)
        sequences = sequences or tuple(sorted(int(n) for n in attempt.sequences))
        listed = ", ".join(str(n) for n in sequences)
        who = f"In sequence(s) {listed} of the data" if known else f"The batch held the sequences {listed} of the data"
        saved = f" and saved in {self.directory}" if self.directory is not None else ""
        norm = getattr(self.settings.optimizer, "clip_norm", None)
        clip = "no clip_norm" if norm is None else f"clip_norm {norm:g}"
        message = (
            f"Training diverged at step {step}: {'; '.join(parts)}. {who}. The model of step {step - 1}, the last good "
            f"one, is in `.model` of this error{saved}. Try a lower learning rate (now "
            f"{self.settings.learning_rate:g}) or stronger clipping (now {clip}); if it fails in the first steps, look "
            "at these sequences for values that are huge or not finite."
        )
        model = eqx.combine(state.params, self.static)
        return TrainingDiverged(message, step=step, terms=terms, sequences=sequences, model=model, state=state)

    def result(self, state: TrainingState) -> Trained:
        record, step = self.record, int(state.step)
        last = eqx.combine(state.params, self.static)
        self.history.truncate(record.rows)
        best = record.best if self.settings.stopping.keep_best else None
        model = last if best is None else eqx.combine(best.params, self.static)
        best_step = step if record.best is None else record.best.step
        stopped = record.stopped or "interrupted"
        return Trained(model, last, best_step, step, self.history, stopped, record.error)


def columns(terms: list[str], validated: bool) -> list[str]:
    """The columns of the history for the terms of an objective."""
    own = ["learning_rate", "gradient_norm", "steps_per_second", "seconds"]
    terms = ["loss", *(name for name in terms if name not in ("loss", "gradient_norm"))]
    extra = [_validation_name(name) for name in terms] if validated else []
    names = ["step", *terms, *extra, *own]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"The history has columns of its own with these names: rename {', '.join(twice)} in info.")
    return names


def _validation_name(term: str) -> str:
    return f"validation_{term}"


def _what_failed(attempt: Attempt) -> tuple[list[str], tuple[str, ...], tuple[int, ...]]:
    """The failure in words, the names of terms that are not finite, and the sequences concerned."""
    terms, bad = [], np.zeros(len(attempt.sequences), bool)
    if not np.isfinite(attempt.loss):
        terms.append("loss")
    for path, leaf in jax.tree_util.tree_leaves_with_path(attempt.info):
        finite = np.isfinite(leaf)
        if finite.all():
            continue
        names = [name for name in path_name(path).split(".") if name != "per_sequence"]
        if "per_sequence" in path_name(path).split("."):
            if finite.shape[-1:] == bad.shape:
                bad |= ~finite.reshape(-1, len(bad)).all(axis=0)
            elif finite.shape[:1] == bad.shape:
                bad |= ~finite.reshape(len(bad), -1).all(axis=1)
        name = ".".join(names)
        if name and name not in terms:
            terms.append(name)
    parts = [f"not finite: {', '.join(terms)}"] if terms else []
    for what, tree in (("gradient of", attempt.finite_gradient), ("value after the step of", attempt.finite_params)):
        leaves = jax.tree_util.tree_leaves_with_path(tree)
        names = [path_name(path) for path, finite in leaves if not finite]
        if names and not parts:
            parts.append(f"not finite: {what} {', '.join(names)}")
            terms += names
    return parts, tuple(terms), tuple(sorted(int(n) for n in np.asarray(attempt.sequences)[bad]))
