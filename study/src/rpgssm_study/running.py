"""One run from beginning to end: data, training, scores, and a file with the result.

What is only needed on the way (checkpoints, the fitted model) stays in a working folder. A run that was interrupted or
killed goes on from its last checkpoint there.
"""

import shutil
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import rpgssm
from rpgssm.settings import declared, read, written
from rpgssm.training import LatentsNotFinite, TrainingDiverged
from rpgssm_study.tasks import Task, load_task

from . import examples, scoring, store
from .curves import Curve
from .methods import METHODS
from .runs import Run, stages

CHECKPOINTS, MODEL, CURVE = "training", "model", "curve.json"
NOT_STORED = ("checkpoint_dir", "checkpoint_every", "verbose")  # settings that change no result


class Interrupted(Exception):
    """The user stopped a run. It goes on from there when it is started again."""


def execute(
    run: Run,
    results: Path,
    work: Path,
    *,
    data_dir: Path | None = None,
    verbose: bool = False,
    checkpoint_every: int = 250,
) -> store.Result:
    """Do a run, unless it is done, and store its result. One that was done for another experiment is taken over."""
    done = store.read(results, run) or _taken_over(results, run)
    if done is not None:
        return done
    folder = work / run.identity
    task = _task(run, data_dir)
    estimator = make(run, folder, verbose=verbose, checkpoint_every=checkpoint_every)
    content: dict[str, Any] = {"data": task.description, "parameters": _parameters(estimator)}
    curve = Curve(task, estimator.total_steps, folder / CURVE)
    try:
        fit(estimator, task, run, curve)
    except TrainingDiverged as error:
        content |= {"status": "diverged", "error": f"step {error.step}: {', '.join(error.terms)} not finite"}
    else:
        if estimator.stopped_ == "interrupted":
            raise Interrupted(run.identity)
        content["training"] = scoring.training(estimator) | {"validation_r2": curve.columns()}
        try:
            content |= {"status": "finished", **_measured(estimator, task, run, data_dir)}
        except LatentsNotFinite as error:
            content |= {"status": "diverged", "error": str(error)}
        estimator.save(folder / MODEL, overwrite=True)
    content |= {"version": rpgssm.__version__, "packages": _packages(), "machine": store.machine()}
    store.write(results, run, content)
    shutil.rmtree(folder / CHECKPOINTS, ignore_errors=True)
    result = store.read(results, run)
    assert result is not None
    return result


def rescore(run: Run, results: Path, work: Path, *, data_dir: Path | None = None) -> bool:
    """Score the fitted model of a finished run anew and store that; what is known of its training stays.

    False if there is nothing to score: the run is not done, or its model is not in this working folder.
    """
    old, folder = store.read(results, run), work / run.identity / MODEL
    if old is None or not old.finished or not folder.exists():
        return False
    estimator = estimator_class(run).load(folder)
    content = {name: value for name, value in old.content.items() if name not in ("format", "run")}
    drawn = old.content["examples"].get("reconstructions")
    found = _measured(estimator, _task(run, data_dir), run, data_dir, drawn)
    store.write(results, run, {**content, **found, "rescored_with_version": rpgssm.__version__})
    return True


def _task(run: Run, data_dir: Path | None) -> Task:
    return load_task(
        run.task,
        seed=run.task_seed,
        data_dir=data_dir,
        background=run.background,  # pyright: ignore[reportArgumentType]
        source=run.source,  # pyright: ignore[reportArgumentType]
    )


def estimator_class(run: Run) -> Any:
    """The class of a run's estimator."""
    return getattr(rpgssm, "Stack" if "stages" in run.settings else METHODS[run.method].estimator)


def make(run: Run, folder: Path, *, verbose: bool, checkpoint_every: int) -> Any:
    """The estimator of a run, not fitted yet. Its checkpoints are kept in the folder, if it has any."""
    method = METHODS[run.method]
    about = declared(getattr(rpgssm, method.estimator))
    common = {**method.fixed, "random_state": run.seed}
    if "checkpoint_every" in about:
        common["checkpoint_every"] = checkpoint_every
    parts = [
        common | {name: read(value, about[name].kind) for name, value in settings.items()}
        for settings in stages(run.settings)
    ]
    made = estimator_class(run)
    estimator = made([rpgssm.RPGSSM(**part) for part in parts]) if "stages" in run.settings else made(**parts[0])
    return estimator.run_in(folder / CHECKPOINTS, verbose)


def fit(estimator: Any, task: Task, run: Run, curve: Curve) -> None:
    """Train, from the last checkpoint if there is one. The validation sequences choose the best step, if one is to be
    chosen."""
    chosen = stages(run.settings)[0].get("validation_fraction", 0.1) is not None
    given = {"validation": task.validation.observations if chosen else None, "callbacks": [curve]}
    if not METHODS[run.method].resumable:
        estimator.fit(task.train.observations, **given)
        return
    try:
        estimator.fit(task.train.observations, **given, resume=True)
    except ValueError as error:
        if not str(error).startswith("Cannot resume"):
            raise
        # settings are part of the folder's name: only another version of the library can have written it
        print(f"{error} Starting afresh.", flush=True)
        estimator.fit(task.train.observations, **given, overwrite=True)


def _taken_over(results: Path, run: Run) -> store.Result | None:
    other = store.same_training(results, run)
    if other is None:
        return None
    content = {name: value for name, value in other.content.items() if name not in ("format", "run")}
    store.write(results, run, {**content, "taken_from": other.run.identity})
    return store.read(results, run)


def _measured(estimator: Any, task: Task, run: Run, data_dir: Path | None, drawn: Any = None) -> dict[str, Any]:
    began = time.perf_counter()
    found = scoring.evaluation(estimator, task, run, data_dir)
    content = {
        "scores": scoring.scores(found),
        "validation": scoring.validation(estimator, task, found.readout),
        "examples": examples.collect(estimator, task, run, found.latents, data_dir, drawn),
    }
    return content | {"evaluation_seconds": time.perf_counter() - began}


def _parameters(estimator: Any) -> dict[str, Any]:
    """All settings, the defaults too: a default may change with the next version."""
    return _stored(written(estimator.get_params(deep=False)))


def _stored(settings: Any) -> Any:
    """Written settings without those that change no result, at any depth."""
    if isinstance(settings, Mapping):
        return {name: _stored(value) for name, value in settings.items() if name not in NOT_STORED}
    return [_stored(value) for value in settings] if isinstance(settings, list) else settings


def _packages() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("jax", "equinox", "optax", "numpy")}
