"""One model on one task: all scores, as a table, as JSON and as figures.

`rpgssm.evaluation` computes what can be said of any recording with targets. This adds what belongs to tasks: means over
the targets that count, robustness to backgrounds, ceilings, and the angle of a head.
"""

import json
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Shaped

import rpgssm.evaluation as library
from rpgssm.evaluation.latents import Marginals, Smoother
from rpgssm.evaluation.regression import LinearReadout, angular_error, mean_score
from rpgssm_study.tasks import Task

from .ceiling import ceiling
from .robustness import infer_variants, robustness


@dataclass(frozen=True)
class Evaluation:
    """`scores` is a nested dictionary that can be written as JSON; the rest is what figures are drawn from.

    `found` holds the latents and readouts that the scores are of.
    """

    scores: dict[str, Any]
    truth: dict[str, np.ndarray] = field(repr=False)
    decoded: dict[str, np.ndarray] = field(repr=False)
    deviation: dict[str, np.ndarray] | None = field(repr=False)
    dt: float | None
    found: library.Evaluation = field(repr=False)

    @property
    def readout(self) -> LinearReadout:
        """The linear readout of the training sequences."""
        assert self.found.readout is not None, "every task has targets"
        return self.found.readout

    @property
    def latents(self) -> np.ndarray:
        """The smoothed means of the training sequences."""
        assert self.found.train is not None
        return self.found.train.mean

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


class _Prepared:
    """A model that is shown what `prepare` makes of observations. It has the abilities of the model itself."""

    def __init__(self, model: Smoother, prepare: Callable[[np.ndarray], np.ndarray]) -> None:
        self._model, self._prepare = model, prepare

    def smooth(self, X: Any, /) -> Marginals:
        return self._model.smooth(self._prepare(X))

    def __getattr__(self, question: str) -> Any:
        ask = getattr(self._model, question)
        return lambda x, *rest: ask(self._prepare(x), *rest)


def evaluate(
    estimator: Smoother,
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
    (`rpgssm_study.tasks.background_variants`), for the robustness score. What a model cannot do (it has no `filter` or
    no `forecast`) is None in the scores.
    """
    model = estimator if prepare is None else _Prepared(estimator, prepare)
    found = library.evaluate(model, task.train, task.test, context=context, horizon=horizon, seed=seed, batch=batch)
    readout, decoded = found.readout, found.decoded
    assert readout is not None, "every task has targets"
    assert decoded is not None
    scores: dict[str, Any] = {
        "task": task.description,
        "latent_dim": found.test.mean.shape[-1],
        "linear": _with_mean(found.linear, task),
        "kernel": _with_mean(found.kernel, task),
        "filtering": _with_mean(found.filtering, task),
        "forecast": _forecast(found.forecast, task),
    }
    if found.calibration is not None:
        scores["calibration"] = {
            kind: {name: asdict(c) for name, c in by_target.items()} for kind, by_target in found.calibration.items()
        }
    if variants is not None:
        scores["robustness"] = asdict(robustness(infer_variants(model.smooth, variants, batch), readout))
        scores["robustness"]["variants"] = len(variants)
    if "head_angle" in task.test.targets:
        angle = task.test.targets["head_angle"]
        scores["head_angle_error_degrees"] = angular_error(angle, decoded["head_direction"])
    scores["ceiling"] = ceiling(task)
    return Evaluation(scores, task.test.targets, decoded, found.deviation, task.dt, found)


def _with_mean(scores: dict[str, float] | None, task: Task) -> dict[str, float] | None:
    return None if scores is None else scores | {"mean": mean_score(scores, task.secondary)}


def _forecast(found: library.Forecasts | None, task: Task) -> dict[str, Any] | None:
    if found is None or found.scores is None:
        return None
    curves = {name: s.r_squared.tolist() for name, s in found.scores.items()}
    counted = [s.r_squared for name, s in found.scores.items() if name not in task.secondary]
    return {
        "context": found.context,
        "r_squared": curves | {"mean": np.mean(counted, axis=0).tolist()},
        "coverage": {name: {k: v.tolist() for k, v in s.coverage.items()} for name, s in found.scores.items()},
    }
