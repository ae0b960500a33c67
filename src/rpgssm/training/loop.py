"""The training loop: one for every model.

`train` moves data and model to the device, has several optimiser steps done there at a time (`program.py`), and between
two such calls does what belongs to the host: rows of the history, validation, early stopping, checkpoints, progress. A
call ends where something is due, at the latest after about half a second.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax

from rpgssm.data import Sequences

from .batching import training_plan, validation_plan
from .checkpoint import TABLE, prepare
from .config import TrainingConfig
from .history import History
from .optimiser import Label, Optimiser, path_name
from .program import Objective, Program, Project
from .progress import ProgressDisplay
from .run import Run, Trained, columns
from .state import TrainingState

_SECONDS_PER_DISPATCH = 0.5
_LONGEST_DISPATCH = 1000


@dataclass(frozen=True)
class Report:
    """What callbacks are told after each dispatch: the new rows of the history, and the model as it is now.

    `model_index` is None unless several models are trained at once.
    """

    step: int
    rows: list[dict[str, float]]
    history: History
    model: Any
    model_index: int | None = None


Callback = Callable[[Report], None]
"""Called after each dispatch. If it has a method `close`, that is called at the end."""


def train(
    model: Any,
    objective: Objective,
    data: Sequences,
    config: TrainingConfig | None = None,
    *,
    validation: Sequences | None = None,
    project: Project | None = None,
    label: Label | None = None,
    optimiser: optax.GradientTransformation | None = None,
    directory: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> Trained:
    """Train a model (any Equinox module) on an objective `(model, batch, key) -> (loss, info)`.

    The floating point arrays of the model are its parameters. The scalars in `info` (a dictionary or module) become
    columns of the history; what it holds under `per_sequence`, arrays whose last axis is that of the batch, is used
    to name the sequences that made a loss infinite. `project` maps the model to a permitted one after each step.
    `label` tells from the path of a parameter ("prior.A") whether it is of the "prior", "main" or "frozen"; by default
    what is under the attribute `prior` is of the prior. `optimiser` replaces optimiser, learning rate and schedule of
    the settings by a transformation of the user's own.

    With a `directory`, the history (CSV) and checkpoints are written there, and `resume=True` goes on from the last
    checkpoint, if there is one, to the same end as if the run had never stopped. An interrupt (Ctrl-C) ends training
    early with a usable model; `TrainingDiverged` is raised when numbers stop being finite.
    """
    config = config or TrainingConfig()
    session = _Session([model], [config.seed], objective, data, config, validation, project, label, optimiser, False)
    directories = [None if directory is None else Path(directory)]
    (trained,) = session.run(directories, resume, overwrite, callbacks, progress)
    if trained.error is not None:
        raise trained.error
    return trained


def train_many(
    models: Sequence[Any],
    objective: Objective,
    data: Sequences,
    config: TrainingConfig | None = None,
    *,
    seeds: Sequence[int] | None = None,
    validation: Sequences | None = None,
    project: Project | None = None,
    label: Label | None = None,
    optimiser: optax.GradientTransformation | None = None,
    directory: Path | str | None = None,
    resume: bool = False,
    overwrite: bool = False,
    callbacks: Sequence[Callback] = (),
    progress: bool = True,
) -> list[Trained]:
    """Train several models of the same structure at once, each as `train` would with its own seed.

    Model i has seed `seeds[i]`, by default `config.seed + i`, and the folder `model-<i>` of the directory. Steps are
    done for all of them together until the last one ends. One that diverges ends there (`stopped == "diverged"`, with
    its last good state), and the others go on.
    """
    config = config or TrainingConfig()
    seeds = [config.seed + i for i in range(len(models))] if seeds is None else list(seeds)
    if len(models) == 0 or len(seeds) != len(models):
        raise ValueError(f"There are {len(models)} models and {len(seeds)} seeds: one seed per model, at least one.")
    session = _Session(list(models), seeds, objective, data, config, validation, project, label, optimiser, True)
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
        config: TrainingConfig,
        validation: Sequences | None,
        project: Project | None,
        label: Label | None,
        optimiser: optax.GradientTransformation | None,
        many: bool,
    ) -> None:
        parts = [eqx.partition(model, eqx.is_inexact_array) for model in models]
        params, self._static = [part[0] for part in parts], parts[0][1]
        _check_same(parts)
        if not jax.tree.leaves(params[0]):
            raise ValueError("The model has no floating point arrays, so there is nothing to train.")
        self._configs = [replace(config, seed=seed) for seed in seeds]
        self._config, self._many, self._seeds = config, many, seeds
        self._description = _describe_data(data) | {"custom optimiser": optimiser is not None}
        self._data = jax.device_put(data)
        self._validation = None if validation is None else jax.device_put(validation)
        steps = config.steps_per_dispatch
        self._program = Program(
            objective,
            self._static,
            training_plan(data, config.batch_size, config.window, config.batches == "alike"),
            Optimiser(config, params[0], label, optimiser),
            config,
            project=project,
            validation=None
            if validation is None
            else validation_plan(validation, config.batch_size, config.window, config.batches == "alike"),
            capacity=min(config.max_steps, _LONGEST_DISPATCH if isinstance(steps, str) else steps),
            many=many,
        )
        self._states = [self._program.initial_state(p, seed, self._data) for p, seed in zip(params, seeds, strict=True)]

    def run(
        self,
        directories: list[Path | None],
        resume: bool,
        overwrite: bool,
        callbacks: Sequence[Callback],
        progress: bool,
    ) -> list[Trained]:
        if directories[0] is None and (resume or overwrite):
            raise ValueError("`resume` and `overwrite` need a `directory`.")
        names = columns(list(self._states[0].totals), self._validation is not None)
        self._runs: list[Run] = []
        try:
            for directory, config in zip(directories, self._configs, strict=True):
                if directory is not None:
                    prepare(directory, resume, overwrite)
                self._runs.append(Run(self._static, config, names, directory))
            self._elapsed = self._restore()
            self._began, self._aside = time.perf_counter(), 0.0
            state = _stack(self._states) if self._many else self._states[0]
            self._now = (state, self._split(state), [run.book for run in self._runs])
            self._adopt()
            try:
                self._loop(callbacks, progress)
            except KeyboardInterrupt:
                self._adopt()  # the interrupt may have come in the middle of it
                for run in self._runs:
                    run.book = replace(run.book, stopped=run.book.stopped or "interrupted")
            return self._finish()
        finally:
            for run in self._runs:
                if run.checkpoints is not None:
                    run.checkpoints.close()
            for callback in callbacks:
                getattr(callback, "close", lambda: None)()

    def _restore(self) -> float:
        """Go back to the last checkpoint that all models have; those that had ended keep their own."""
        stored = [run.checkpoints.steps if run.checkpoints is not None else [] for run in self._runs]
        seconds = 0.0
        if all(stored):
            last = [steps[-1] for steps in stored]
            for i, run in enumerate(self._runs):
                self._states[i], seconds = run.restore(last[i], self._states[i], self._description)
            running = [i for i, run in enumerate(self._runs) if run.book.stopped is None]
            common = sorted(set.intersection(*(set(stored[i]) for i in running))) if running else []
            for i in running:
                if not common:
                    raise ValueError(f"The models in {self._runs[i].directory} and beside it have no step in common.")
                self._states[i], seconds = self._runs[i].restore(common[-1], self._states[i], self._description)
        for run in self._runs:
            if run.directory is not None:
                run.history.to_csv(run.directory / TABLE)
        return seconds

    def _loop(self, callbacks: Sequence[Callback], progress: bool) -> None:
        config, program = self._config, self._program
        step = max((int(self._states[i].step) for i in self._running()), default=config.max_steps)
        chunk = 4 if config.steps_per_dispatch == "auto" else config.steps_per_dispatch
        with ProgressDisplay(config.max_steps, step, progress) as display:
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
                self._digest(out, running, step, rows, terms, times, lives)
                self._report(running, end, callbacks)
                newest = self._runs[running[0]].history
                row = newest.row(-1) if len(newest) else None
                display.update(end, times["steps_per_second"], row, final=not self._running())
                if config.steps_per_dispatch == "auto":
                    chunk = int(np.clip((end - step) * _SECONDS_PER_DISPATCH / taken, 1, 4 * (end - step) + chunk))
                step = end

    def _validate(self, state: TrainingState, step: int) -> Any:
        due = step % self._config.validate_every == 0 or step == self._config.max_steps
        if self._validation is None or not due:
            return None
        return jax.device_get(self._program.evaluate(state, self._validation))

    def _digest(self, out: Any, running: list[int], step: int, rows: Any, terms: Any, times: Any, lives: Any) -> None:
        """Take over the results of a dispatch, all at once."""
        states, books = self._split(out.state), [run.book for run in self._runs]
        for i in running:
            run, state = self._runs[i], states[i]
            own = {name: column[:, i] if self._many else column for name, column in rows.items()}
            alive = bool(self._view(lives, i))
            measured = None if terms is None or not alive else {k: self._view(v, i) for k, v in terms.items()}
            book = run.digest(state, step, own, measured, times)
            if not alive:
                error = run.fail(state, jax.device_get(self._view(out.attempt, i)))
                book = replace(book, stopped="diverged", error=error)
            books[i] = book
        self._before = [run.book.rows for run in self._runs]
        self._now = (out.state, states, books)
        self._adopt()

    def _adopt(self) -> None:
        self._state, self._states, books = self._now
        for run, book in zip(self._runs, books, strict=True):
            run.book = book

    def _report(self, running: list[int], step: int, callbacks: Sequence[Callback]) -> None:
        for i in running:
            run, state = self._runs[i], self._states[i]
            run.write_history(self._before[i])
            if step % self._config.checkpoint_every == 0 or run.book.stopped is not None:
                run.save(state, self._description, self._seconds())
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
            results.append(run.result(self._states[i]))
            run.save(self._states[i], self._description, self._seconds())
            if run.directory is not None:
                run.history.to_csv(run.directory / TABLE)
        return results

    def _next_stop(self, step: int, chunk: int) -> int:
        config = self._config
        stops = [step + chunk, config.max_steps]
        if self._validation is not None:
            stops.append((step // config.validate_every + 1) * config.validate_every)
        if self._runs[0].checkpoints is not None:
            stops.append((step // config.checkpoint_every + 1) * config.checkpoint_every)
        return min(stops)

    def _running(self) -> list[int]:
        return [i for i, run in enumerate(self._runs) if run.book.stopped is None]

    def _split(self, state: TrainingState) -> list[TrainingState]:
        return list(_unstack(state, len(self._runs))) if self._many else [state]

    def _view(self, tree: Any, index: int) -> Any:
        """What belongs to one model."""
        return jax.tree.map(lambda x: x[index], tree) if self._many else tree

    def _seconds(self) -> float:
        """Time spent on training so far; what callbacks took is not counted."""
        return self._elapsed + time.perf_counter() - self._began - self._aside


@partial(jax.jit, static_argnums=1)
def _unstack(tree: Any, number: int) -> tuple[Any, ...]:
    """In one call, since one per array and model would be felt."""
    return tuple(jax.tree.map(lambda x, i=i: x[i], tree) for i in range(number))


def _stack(trees: list[Any]) -> Any:
    return jax.tree.map(lambda *xs: jnp.stack(xs), *trees)


def _check_same(parts: list[tuple[Any, Any]]) -> None:
    def shape(params: Any) -> dict[str, tuple]:
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


def _describe_data(data: Sequences) -> dict[str, Any]:
    leaves = jax.tree_util.tree_leaves_with_path(data)
    return {f"data.{path_name(path)}": f"{leaf.dtype}{list(leaf.shape)}" for path, leaf in leaves}
