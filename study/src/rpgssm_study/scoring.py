"""All numbers that are stored of a fitted model."""

import os
from typing import Any

import numpy as np

from rpgssm.evaluation import LinearReadout, collect, mean_score
from rpgssm_study.evaluation import Evaluation, evaluate
from rpgssm_study.tasks import TASKS, Task, background_variants

from .runs import Run

POINTS = 50  # of a learning curve
BATCH = 50
VARIANTS, SEQUENCES = 5, 10  # backgrounds, and sequences shown before each, for the robustness score


def evaluation(estimator: Any, task: Task, run: Run, data_dir: Any = None) -> Evaluation:
    """Everything that is found on the test sequences. Latents of the training sequences are in it, for other uses."""
    return evaluate(estimator, task, variants=variants(task, run, data_dir), batch=BATCH)


def scores(found: Evaluation) -> dict[str, Any]:
    """The scores that are stored. The task's description is stored once, elsewhere."""
    return {name: value for name, value in found.scores.items() if name != "task"}


def variants(task: Task, run: Run, data_dir: Any, n: int = SEQUENCES) -> np.ndarray | None:
    """The same films before other backgrounds; None for tasks that have none."""
    if TASKS[run.task].background is None:
        return None
    return background_variants(
        run.task,
        variants=VARIANTS,
        n=min(n, len(task.test)),
        seed=run.task_seed,
        data_dir=data_dir,
        background=run.background,  # pyright: ignore[reportArgumentType]
        source=run.source,  # pyright: ignore[reportArgumentType]
    )


def readout(estimator: Any, task: Task, sequences: int | None = None) -> LinearReadout:
    """The linear readout of the first training sequences."""
    targets = {name: y[:sequences] for name, y in task.train.targets.items()}
    return LinearReadout.fit(means(estimator, task.train.observations[:sequences]), targets)


def validation(estimator: Any, task: Task, readout: LinearReadout) -> dict[str, float]:
    """Linear R² on the validation sequences: what settings are chosen by."""
    found = readout.score(means(estimator, task.validation.observations), task.validation.targets)
    return found | {"mean": mean_score(found, task.secondary)}


def means(estimator: Any, observations: np.ndarray) -> np.ndarray:
    """Smoothed means, some sequences at a time."""
    return collect(estimator.smooth, observations, BATCH).mean


def training(estimator: Any) -> dict[str, Any]:
    """How the training went, how long it took, and how busy the machine was (the number of processes at work)."""
    history = estimator.history_
    seconds, steps = float(history["seconds"][-1]), int(estimator.n_steps_)
    # EM has no such column; its first iteration is dropped, as it compiles
    rates = history.get("steps_per_second", 1 / np.maximum(np.diff(history["seconds"]), 1e-9))
    rate = float(np.median(rates)) if len(rates) else steps / max(seconds, 1e-9)
    return {
        "seconds": seconds,
        "steps": steps,
        "best_step": int(estimator.best_step_),
        "stopped": str(estimator.stopped_),
        "steps_per_second": rate,
        "load": os.getloadavg()[0] if hasattr(os, "getloadavg") else None,
        "curve": curve(history),
    }


def curve(history: dict[str, np.ndarray], points: int = POINTS) -> dict[str, list[float | None]]:
    """Loss against step and time, at some of the steps: validated ones if there are such, the last one always."""
    names = [name for name in ("step", "seconds", "loss", "validation_loss") if name in history]
    validated = np.isfinite(history["validation_loss"]) if "validation_loss" in history else np.zeros(0, bool)
    rows = np.flatnonzero(validated) if validated.sum() > 1 else np.arange(len(history["step"]))
    chosen = rows[np.unique(np.linspace(0, len(rows) - 1, min(points, len(rows))).round().astype(int))]
    return {name: [float(x) if np.isfinite(x) else None for x in history[name][chosen]] for name in names}
