"""What is known of one model in training on the host: its history, its best state so far, its checkpoints."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Literal

import equinox as eqx
import jax
import numpy as np

from .checkpoint import TABLE, Checkpoints
from .config import TrainingConfig
from .errors import TrainingDiverged
from .history import History
from .optimiser import path_name
from .program import Attempt
from .state import TrainingState, from_arrays, to_arrays

Stopped = Literal["max_steps", "early", "interrupted", "diverged"]


@dataclass(frozen=True)
class Best:
    """The parameters with the lowest validation loss, and when that was."""

    params: Any
    step: int
    loss: float


@dataclass(frozen=True)
class Book:
    """What changes from dispatch to dispatch, replaced as a whole: an interrupt finds the old or the new, never half.

    `rows` of the history are valid; `waiting` is the number of validations since the best one.
    """

    rows: int = 0
    best: Best | None = None
    waiting: int = 0
    stopped: Stopped | None = None
    error: TrainingDiverged | None = None


@dataclass(frozen=True)
class Trained:
    """The result of training.

    `model` is the one of the best validation (step `best_step`), or the last one if there was no validation or
    `keep_best` is False; `last_model` is that of the last step, `step`. `stopped` says why it ended; "diverged" only
    occurs when several models are trained at once (one alone raises), and `error` then says more.
    """

    model: Any
    last_model: Any
    best_step: int
    step: int
    history: History
    stopped: Stopped
    config: TrainingConfig
    error: TrainingDiverged | None = None


class Run:
    """One model in training."""

    def __init__(self, static: Any, config: TrainingConfig, names: list[str], directory: Path | None) -> None:
        self.static = static
        self.config = config
        self.history = History(names)
        self.book = Book()
        self.directory = directory
        self.checkpoints = None if directory is None else Checkpoints(directory)

    def digest(
        self,
        state: TrainingState,
        start: int,
        rows: Mapping[str, np.ndarray],
        validation: Mapping[str, Any] | None,
        times,
    ) -> Book:
        """The book after a dispatch from step `start` on: rows of the history, best model, whether to stop."""
        config, book, end = self.config, self.book, int(state.step)
        self.history.truncate(book.rows)
        for i in range(end - start):
            step = start + i + 1
            due = step % config.log_every == 0 or step == config.max_steps
            if due or (validation is not None and step == end):
                row: dict[str, float] = {
                    "step": float(step),
                    **{name: float(x[i]) for name, x in rows.items()},
                    **times,
                }
                if validation is not None and step == end:
                    row |= {_validation_name(name): float(x) for name, x in validation.items()}
                self.history.append(row)
        book = replace(book, rows=len(self.history))
        if validation is not None:
            loss = float(validation["loss"])
            if math.isfinite(loss) and (book.best is None or loss < book.best.loss):
                book = replace(book, best=Best(state.params, end, loss), waiting=0)
            else:
                book = replace(book, waiting=book.waiting + 1)
        return replace(book, stopped=self._why_stop(book, end))

    def _why_stop(self, book: Book, step: int) -> Stopped | None:
        if self.config.patience is not None and book.waiting >= self.config.patience:
            return "early"
        return "max_steps" if step >= self.config.max_steps else None

    def write_history(self, first: int) -> None:
        if self.directory is not None:
            self.history.append_to_csv(self.directory / TABLE, first)

    def save(self, state: TrainingState, data: Mapping[str, Any], seconds: float) -> None:
        """Write a checkpoint."""
        if self.checkpoints is None:
            return
        best = self.book.best
        arrays = to_arrays(state, "state") | {"history": self.history.to_array()}
        if best is not None:
            arrays |= to_arrays(best.params, "best")
        meta = {
            "config": asdict(self.config),
            "data": dict(data),
            "columns": self.history.names,
            "best": None if best is None else {"step": best.step, "loss": best.loss},
            "waiting": self.book.waiting,
            "diverged": self.book.stopped == "diverged",
            "seconds": seconds,
        }
        self.checkpoints.save(int(state.step), arrays, meta)

    def restore(self, step: int, template: TrainingState, data: Mapping[str, Any]) -> tuple[TrainingState, float]:
        """The state in the checkpoint of a step, and the seconds spent so far; ValueError if it is of another run."""
        assert self.checkpoints is not None
        arrays, meta = self.checkpoints.load(step)
        where = f"Cannot resume the run in {self.directory}"
        wrong = self.config.differences(meta["config"])
        wrong += [
            f"{name} is {data.get(name)} and was {was}" for name, was in meta["data"].items() if data.get(name) != was
        ]
        wrong += [f"{name} is new" for name in data if name not in meta["data"]]
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
        self.history = History(meta["columns"], arrays["history"])
        book = Book(len(self.history), best, meta["waiting"])
        stopped = "diverged" if meta["diverged"] else self._why_stop(book, step)
        self.book = replace(book, stopped=stopped)
        return state, meta["seconds"]

    def fail(self, state: TrainingState, attempt: Attempt) -> TrainingDiverged:
        """The error that describes a failed step; `state` is from before it."""
        step = int(state.step) + 1
        parts, terms, sequences = _what_failed(attempt)
        known = bool(sequences)
        sequences = sequences or tuple(sorted(int(n) for n in attempt.sequences))
        listed = ", ".join(str(n) for n in sequences)
        who = f"In sequence(s) {listed} of the data" if known else f"The batch held the sequences {listed} of the data"
        saved = f" and saved in {self.directory}" if self.directory is not None else ""
        clip = "no clip_norm" if self.config.clip_norm is None else f"clip_norm {self.config.clip_norm:g}"
        message = (
            f"Training diverged at step {step}: {'; '.join(parts)}. {who}. The model of step {step - 1}, the last good "
            f"one, is in `.model` of this error{saved}. Try a lower learning rate (now "
            f"{self.config.learning_rate:g}) or stronger clipping (now {clip}); if it fails in the first steps, look "
            "at these sequences for values that are huge or not finite."
        )
        model = eqx.combine(state.params, self.static)
        return TrainingDiverged(message, step=step, terms=terms, sequences=sequences, model=model, state=state)

    def result(self, state: TrainingState) -> Trained:
        book, step = self.book, int(state.step)
        last = eqx.combine(state.params, self.static)
        self.history.truncate(book.rows)
        best = book.best if self.config.keep_best else None
        model = last if best is None else eqx.combine(best.params, self.static)
        best_step = step if book.best is None else book.best.step
        stopped = book.stopped or "interrupted"
        return Trained(model, last, best_step, step, self.history, stopped, self.config, book.error)


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
    """In words, by name, and which sequences."""
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
