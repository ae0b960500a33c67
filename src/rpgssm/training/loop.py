"""The training loop of all models.

`train` moves data and model to the device. Each dispatch does several optimizer steps there (`program.py`). Between two
dispatches the host adds rows to the history, validates, stops early, saves checkpoints and shows progress. A dispatch
ends when one of these is due, at the latest after about half a second.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PyTree

from rpgssm import __version__
from rpgssm.data import Sequences
from rpgssm.settings import check, is_whole
from rpgssm.settings import identity as identity_of

from .checkpoint import TABLE, prepare
from .config import Training
from .fingerprint import data_identity
from .history import History
from .optimizer import Updater, path_name
from .program import Advance, Objective, Program, Project
from .progress import ProgressDisplay
from .run import Run, Trained, columns
from .samplers import window_for
from .state import TrainingState

M = TypeVar("M")
LOG_EVERY = 10  # steps per row of the history
_SECONDS_PER_DISPATCH = 0.5
_LONGEST_DISPATCH = 1000


@dataclass(frozen=True)
class Report:
    """The argument of callbacks after each dispatch: new rows of the history, and the current model.

    `model_index` is None unless several models are trained at once.
    """

    step: int
    rows: list[dict[str, float]]
    history: History
    model: PyTree
    model_index: int | None = None


Callback = Callable[[Report], None]
"""A function to call after each dispatch. Its method `close`, if it has one, is called at the end."""


def train(
    model: M,
    objective: Objective,
    data: Sequences,
    settings: Training | None = None,
    *,
    seed: int = 0,
    validation: Sequences | None = None,
    project: Project | None = None,
    identity: Mapping[str, Any] | None = None,
    directory: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    log_every: int = LOG_EVERY,
    steps_per_dispatch: int | None = None,
) -> Trained[M]:
    """Train a model (any Equinox module) on an objective `(model, batch, key) -> (loss, info)`.

    The floating point arrays of the model, outside of `Fixed` modules, are its parameters. The scalars in `info` (a
    dictionary or module) become columns of the history. Its arrays under `per_sequence`, with the batch as last axis,
    show which sequences made a loss infinite. `project` maps the model to a permitted one after each step.

    With a `directory`, the history (CSV) and checkpoints are written there. `resume=True` goes on from the last
    checkpoint, if there is one, with the same result as a run without interruption. A resumed run must have the same
    `identity`; by default the settings, seed and data. An interrupt (Ctrl-C) ends training early with a usable model.
    Raises `TrainingDiverged` when numbers are no longer finite.

    A row of the history averages `log_every` steps. `steps_per_dispatch` is the number of steps between two returns to
    Python. It changes no result; the default takes about half a second.
    """
    options = identity, log_every, steps_per_dispatch
    session = _Session([model], [seed], objective, data, settings, validation, project, *options, many=False)
    directories = [None if directory is None else Path(directory)]
    (trained,) = session.run(directories, resume, overwrite, callbacks, progress)
    if trained.error is not None:
        raise trained.error
    return trained


def train_many(
    models: Sequence[M],
    objective: Objective,
    data: Sequences,
    settings: Training | None = None,
    *,
    seeds: Sequence[int] | None = None,
    validation: Sequences | None = None,
    project: Project | None = None,
    identity: Mapping[str, Any] | None = None,
    directory: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
    log_every: int = LOG_EVERY,
    steps_per_dispatch: int | None = None,
) -> list[Trained[M]]:
    """Train several models of the same structure at once, each as `train` does with its own seed.

    Model i has seed `seeds[i]`, by default i, and the folder `model-<i>` of the directory. All do each step together. A
    model that diverges stops (`stopped == "diverged"`, with its last good state), and the others go on.
    """
    seeds = list(range(len(models))) if seeds is None else list(seeds)
    if len(models) == 0 or len(seeds) != len(models):
        raise ValueError(f"There are {len(models)} models and {len(seeds)} seeds: one seed per model, at least one.")
    options = identity, log_every, steps_per_dispatch
    session = _Session(list(models), seeds, objective, data, settings, validation, project, *options, many=True)
    directories = [None if directory is None else Path(directory) / f"model-{i}" for i in range(len(models))]
    return session.run(directories, resume, overwrite, callbacks, progress)


class _Session:
    """One call of `train` or `train_many`."""

    def __init__(
        self,
        models: list[Any],
        seeds: list[int],
        objective: Objective,
        data: Sequences,
        settings: Training | None,
        validation: Sequences | None,
        project: Project | None,
        identity: Mapping[str, Any] | None,
        log_every: int,
        steps_per_dispatch: int | None,
        many: bool,
    ) -> None:
        settings = settings or Training()
        check(settings)
        for name, value in (("log_every", log_every), ("steps_per_dispatch", steps_per_dispatch)):
            if value is not None and not is_whole(value, 1):
                raise ValueError(f"{name} is {value!r}: it must be a whole number of at least 1")
        parts = [eqx.partition(model, eqx.is_inexact_array) for model in models]
        params, self._static = [part[0] for part in parts], parts[0][1]
        _check_same(parts)
        if not jax.tree.leaves(params[0]):
            raise ValueError("The model has no floating point arrays, so there is nothing to train.")
        self._settings, self._many, self._seeds = settings, many, seeds
        self._log_every, self._steps_per_dispatch = log_every, steps_per_dispatch
        self._given, self._given_identity = (data, validation), identity
        self._data = jax.device_put(data)
        self._validation = None if validation is None else jax.device_put(validation)
        window = window_for(settings.window, data, settings.batch_size)
        sampler, size = settings.sampler, settings.batch_size
        self._program = Program(
            objective,
            self._static,
            sampler.plan(data, size, window),
            Updater(settings.optimizer, settings.learning_rate, settings.max_steps, params[0]),
            augment=settings.augment,
            log_every=log_every,
            project=project,
            validation=None if validation is None else sampler.validation(validation, size, window),
            capacity=min(settings.max_steps, steps_per_dispatch or _LONGEST_DISPATCH),
            many=many,
        )
        self._states = [self._program.initial_state(p, seed, self._data) for p, seed in zip(params, seeds, strict=True)]

    def _identity(self) -> dict[str, Any]:
        """The identity of the run, which a resumed run must share."""
        own = self._given_identity
        if own is None:
            own = identity_of(self._settings) | data_identity(*self._given)
        return {**own, "log_every": self._log_every}

    def _about_program(self) -> dict[str, Any]:
        """The digest of the training step, with the versions and the device that also change it."""
        digest = self._program.digest(self._states[0], self._data)
        device = jax.devices()[0].device_kind
        return {"digest": digest, "rpgssm": __version__, "jax": jax.__version__, "device": device}

    def run(
        self,
        directories: list[Path | None],
        resume: bool,
        overwrite: bool,
        callbacks: Sequence[Callback],
        progress: bool,
    ) -> list[Trained]:
        if directories[0] is None and (resume or overwrite):
            raise ValueError(
                "resume=True and overwrite=True are about a folder of checkpoints: name it (checkpoint_dir of an "
                "estimator, directory= of train)"
            )
        names = columns(list(self._states[0].totals), self._validation is not None)
        self._runs: list[Run] = []
        self._interrupted = False
        try:
            kept = directories[0] is not None
            told, program = (self._identity(), self._about_program()) if kept else ({}, {})
            for directory, seed in zip(directories, self._seeds, strict=True):
                if directory is not None:
                    prepare(directory, resume, overwrite)
                own = told | {"seed": seed}
                run = Run(self._static, self._settings, self._log_every, names, own, program, directory)
                self._runs.append(run)
            self._elapsed = self._restore()
            self._began, self._aside = time.perf_counter(), 0.0
            state = _stack(self._states) if self._many else self._states[0]
            self._now = (state, self._split(state), [run.record for run in self._runs])
            self._adopt()
            try:
                self._loop(callbacks, progress)
            except KeyboardInterrupt:
                self._interrupted = True
                self._adopt()  # again, since the interrupt may have come in the middle of it
                for run in self._runs:
                    run.record = replace(run.record, stopped=run.record.stopped or "interrupted")
            return self._finish()
        finally:
            for run in self._runs:
                if run.checkpoints is not None:
                    run.checkpoints.close()
            for callback in callbacks:
                getattr(callback, "close", lambda: None)()

    def _restore(self) -> float:
        """Restore the last checkpoint that all running models have; others restore their own last one."""
        stored = [run.checkpoints.steps if run.checkpoints is not None else [] for run in self._runs]
        seconds = 0.0
        if all(stored):
            last = [steps[-1] for steps in stored]
            for i, run in enumerate(self._runs):
                self._states[i], seconds = run.restore(last[i], self._states[i])
            running = [i for i, run in enumerate(self._runs) if run.record.stopped is None]
            common = sorted(set.intersection(*(set(stored[i]) for i in running))) if running else []
            for i in running:
                if not common:
                    raise ValueError(f"The models in {self._runs[i].directory} and beside it have no step in common.")
                self._states[i], seconds = self._runs[i].restore(common[-1], self._states[i])
        for run in self._runs:
            if run.directory is not None:
                run.history.to_csv(run.directory / TABLE)
        return seconds

    def _loop(self, callbacks: Sequence[Callback], progress: bool) -> None:
        max_steps, program = self._settings.max_steps, self._program
        step = max((int(self._states[i].step) for i in self._running()), default=max_steps)
        given = self._steps_per_dispatch
        chunk = given or 4
        with ProgressDisplay(max_steps, step, progress) as display:
            if self._running():
                program.compile(self._state, self._data, self._validation)
            while running := self._running():
                end = self._next_stop(step, min(chunk, program.capacity))
                started = time.perf_counter()
                alive = np.array([i in running for i in range(len(self._runs))])
                out = program.advance(
                    self._state, jnp.asarray(alive if self._many else alive[0]), self._data, step, end - step
                )
                rows, lives = jax.device_get((out.rows, out.alive))
                taken = time.perf_counter() - started
                terms = self._validate(out.state, end) if lives.any() else None
                times = {"steps_per_second": (end - step) / taken, "seconds": self._seconds()}
                self._take_over(out, running, step, rows, terms, times, lives)
                self._report(running, end, callbacks)
                newest = self._runs[running[0]].history
                row = newest.row(-1) if len(newest) else None
                display.update(end, times["steps_per_second"], row, final=not self._running())
                if given is None:
                    chunk = int(np.clip((end - step) * _SECONDS_PER_DISPATCH / taken, 1, 4 * (end - step) + chunk))
                step = end

    def _validate(self, state: TrainingState, step: int) -> PyTree:
        due = step % self._settings.stopping.validate_every == 0 or step == self._settings.max_steps
        if self._validation is None or not due:
            return None
        return jax.device_get(self._program.evaluate(state, self._validation))

    def _take_over(
        self, out: Advance, running: list[int], step: int, rows: PyTree, terms: PyTree, times: PyTree, lives: PyTree
    ) -> None:
        """Take over the results of a dispatch, all at once."""
        states, records = self._split(out.state), [run.record for run in self._runs]
        for i in running:
            run, state = self._runs[i], states[i]
            own = {name: column[:, i] if self._many else column for name, column in rows.items()}
            alive = bool(self._view(lives, i))
            measured = None if terms is None or not alive else {k: self._view(v, i) for k, v in terms.items()}
            record = run.recorded(state, step, own, measured, times)
            if not alive:
                error = run.fail(state, jax.device_get(self._view(out.attempt, i)))
                record = replace(record, stopped="diverged", error=error)
            records[i] = record
        self._before = [run.record.rows for run in self._runs]
        self._now = (out.state, states, records)
        self._adopt()

    def _adopt(self) -> None:
        self._state, self._states, records = self._now
        for run, record in zip(self._runs, records, strict=True):
            run.record = record

    def _report(self, running: list[int], step: int, callbacks: Sequence[Callback]) -> None:
        for i in running:
            run, state = self._runs[i], self._states[i]
            run.write_history(self._before[i])
            if step % self._settings.checkpoint_every == 0 or run.record.stopped is not None:
                run.save(state, self._seconds())
        for i in running:
            run = self._runs[i]
            new = [run.history.row(r) for r in range(self._before[i], len(run.history))]
            model = eqx.combine(self._states[i].params, self._static) if callbacks else None
            began = time.perf_counter()
            for callback in callbacks:
                callback(Report(step, new, run.history, model, i if self._many else None))
            self._aside += time.perf_counter() - began

    def _finish(self) -> list[Trained]:
        results = []
        for i, run in enumerate(self._runs):
            results.append(replace(run.result(self._states[i]), interrupted=self._interrupted))
            run.save(self._states[i], self._seconds())
            if run.directory is not None:
                run.history.to_csv(run.directory / TABLE)
        return results

    def _next_stop(self, step: int, chunk: int) -> int:
        settings, validate_every = self._settings, self._settings.stopping.validate_every
        stops = [step + chunk, settings.max_steps]
        if self._validation is not None:
            stops.append((step // validate_every + 1) * validate_every)
        if self._runs[0].checkpoints is not None:
            stops.append((step // settings.checkpoint_every + 1) * settings.checkpoint_every)
        return min(stops)

    def _running(self) -> list[int]:
        return [i for i, run in enumerate(self._runs) if run.record.stopped is None]

    def _split(self, state: TrainingState) -> list[TrainingState]:
        return list(_unstack(state, len(self._runs))) if self._many else [state]

    def _view(self, tree: PyTree, index: int) -> PyTree:
        """The part of one model."""
        return jax.tree.map(lambda x: x[index], tree) if self._many else tree

    def _seconds(self) -> float:
        """Time spent on training so far, without callbacks."""
        return self._elapsed + time.perf_counter() - self._began - self._aside


@partial(jax.jit, static_argnums=1)
def _unstack(tree: PyTree, number: int) -> tuple[Any, ...]:
    """One tree for each model. A single compiled call is much faster than one per array and model."""
    return tuple(jax.tree.map(lambda x, i=i: x[i], tree) for i in range(number))


def _stack(trees: list[PyTree]) -> PyTree:
    return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)


def _check_same(parts: list[tuple[Any, Any]]) -> None:
    def shape(params: PyTree) -> dict[str, tuple]:
        leaves = jax.tree_util.tree_leaves_with_path(params)
        return {path_name(path): (leaf.shape, leaf.dtype) for path, leaf in leaves}

    first = shape(parts[0][0])
    for i, (params, static) in enumerate(parts):
        other = shape(params)
        if other != first:
            wrong = sorted(name for name in first | other if first.get(name) != other.get(name))
            raise ValueError(
                f"Models trained at once must have the same arrays: model {i} differs in {', '.join(wrong)}."
            )
        if jax.tree.structure(static) != jax.tree.structure(parts[0][1]):
            raise ValueError(f"Models trained at once must have the same structure: that of model {i} differs.")
