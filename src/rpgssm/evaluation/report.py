"""One model on one task: all scores, as a table, as JSON and as figures."""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

from rpgssm.tasks import Task

from .calibration import Misfit, calibrate
from .ceiling import ceiling
from .forecasting import forecast_scores, look_ahead
from .latents import Estimator, collect
from .regression import KernelReadout, LinearReadout, angular_error, mean_score
from .robustness import infer_variants, robustness


@dataclass(frozen=True)
class Evaluation:
    """`scores` is a nested dictionary that can be written as JSON; the rest is what figures are drawn from."""

    scores: dict[str, Any]
    truth: dict[str, np.ndarray] = field(repr=False)
    decoded: dict[str, np.ndarray] = field(repr=False)
    deviation: dict[str, np.ndarray] | None = field(repr=False)
    dt: float | None = None

    def to_json(self, path: str | os.PathLike[str] | None = None) -> str:
        """The scores as JSON, also written to `path` if one is given."""
        text = json.dumps(self.scores, indent=2, allow_nan=False) + "\n"
        if path is not None:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
            Path(path).write_text(text, encoding="utf-8")
        return text

    def table(self) -> str:
        from .presentation import table

        return table(self.scores)

    def figures(self, directory: str | os.PathLike[str]) -> list[Path]:
        """Draw the figures into a directory, and say which files were written."""
        from .presentation import draw_figures

        return draw_figures(self, Path(directory))


def evaluate(
    estimator: Estimator,
    task: Task,
    *,
    seed: int = 0,
    context: int = 50,
    horizon: int = 50,
    variants: Shaped[np.ndarray, "variants n t *frame"] | None = None,
    prepare: Callable[[np.ndarray], np.ndarray] | None = None,
    batch: int = 50,
) -> Evaluation:
    """Score a fitted model on the test split of a task; readouts are fitted on the training split.

    The model sees the task's observations as they are stored (8-bit images as integers), or what `prepare` makes of
    them, `batch` sequences at a time. `variants` are the same trajectories under several backgrounds
    (`rpgssm.tasks.background_variants`), for the robustness score. What a model cannot do (`can_filter` or
    `can_forecast` is False) is None in the scores.
    """

    def shown(x: np.ndarray) -> np.ndarray:
        return x if prepare is None else prepare(x)

    def smooth(x: np.ndarray) -> Any:
        return estimator.smooth(shown(x))

    train = collect(smooth, task.train.observations, batch)
    test = collect(smooth, task.test.observations, batch)
    readout = LinearReadout.fit(train.mean, task.train.targets)
    kernel = KernelReadout(train.mean, task.train.targets, seed=seed)
    filtered = None
    if getattr(estimator, "can_filter", True):
        filtered = collect(lambda x: estimator.filter(shown(x)), task.test.observations, batch)
    targets = task.test.targets
    scores: dict[str, Any] = {
        "task": task.description,
        "latent_dim": test.mean.shape[-1],
        "linear": _with_mean(readout.score(test.mean, targets), task),
        "kernel": _with_mean(kernel.score(test.mean, targets), task),
        "filtering": None if filtered is None else _with_mean(readout.score(filtered.mean, targets), task),
    }
    misfit = None if train.cov is None else Misfit.fit(readout, train, task.train.targets)
    scores["forecast"] = None
    if getattr(estimator, "can_forecast", True):
        scores["forecast"] = _forecast(
            lambda x, steps: estimator.forecast(shown(x), steps), task, readout, context, horizon, batch
        )
    if test.cov is not None:
        scores["calibration"] = {
            "posterior": {name: asdict(c) for name, c in calibrate(readout, test, targets).items()},
            "with_misfit": {name: asdict(c) for name, c in calibrate(readout, test, targets, misfit).items()},
        }
    if variants is not None:
        scores["robustness"] = asdict(robustness(infer_variants(smooth, variants, batch), readout))
        scores["robustness"]["variants"] = len(variants)
    if "head_angle" in targets:
        decoded = readout.predict(test.mean)["head_direction"]
        scores["head_angle_error_degrees"] = angular_error(targets["head_angle"], decoded)
    scores["ceiling"] = ceiling(task)
    deviation = None if misfit is None or test.cov is None else misfit.deviation(readout, test.cov)
    return Evaluation(scores, targets, readout.predict(test.mean), deviation, task.dt)


def _with_mean(scores: dict[str, float], task: Task) -> dict[str, float]:
    return scores | {"mean": mean_score(scores, task.secondary)}


def _forecast(forecast, task: Task, readout, context: int, horizon: int, batch: int) -> dict[str, Any]:
    (learnt, truth), (ahead, future) = (
        look_ahead(forecast, split.observations, split.targets, context, horizon, batch)
        for split in (task.train, task.test)
    )
    misfit = None if learnt.cov is None else Misfit.fit(readout, learnt, truth, by_frame=True)
    by_target = forecast_scores(readout, ahead, future, misfit)
    curves = {name: s.r_squared.tolist() for name, s in by_target.items()}
    counted = [s.r_squared for name, s in by_target.items() if name not in task.secondary]
    return {
        "context": context,
        "r_squared": curves | {"mean": np.mean(counted, axis=0).tolist()},
        "coverage": {name: {k: v.tolist() for k, v in s.coverage.items()} for name, s in by_target.items()},
    }
