"""How far ahead a model sees: R² and coverage against horizon.

Forecast latents are decoded through the regression that was fitted on smoothed training latents; only the width of the
intervals may be fitted, to forecasts of training sequences (`Misfit` by frame). At horizon h the score is over all
sequences' h-th frame after the context.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float, Shaped

from rpgssm.data import Sequences

from .calibration import LEVELS, Misfit, coverage, standardised_errors
from .labelled import Part
from .latents import Latents, Marginals, collect
from .regression import LinearReadout, Targets, known, r_squared


@dataclass(frozen=True)
class ForecastScores:
    """Of one target: R² and, where there are covariances, coverage at each horizon (the first is one frame ahead)."""

    r_squared: Float[np.ndarray, " horizon"]
    coverage: dict[str, np.ndarray]


def look_ahead(
    forecast: Callable[..., Marginals],
    observations: Shaped[np.ndarray, "n t *frame"] | Sequences,
    targets: Targets,
    context: int,
    horizon: int,
    batch: int = 50,
) -> tuple[Latents, Targets]:
    """Forecasts from the first `context` frames, and the targets of the `horizon` frames that were forecast.

    Sequences must reach beyond the context (see `long_enough`). Where one ends before the horizon its targets are NaN.
    """
    part = Part(observations, targets)
    if context < 1 or horizon < 1 or context + horizon > part.time:
        raise ValueError(f"context = {context} and horizon = {horizon} do not fit into sequences of {part.time} frames")

    def ahead(x: Shaped[np.ndarray, "n t *frame"] | Sequences) -> Marginals:
        if not isinstance(x, Sequences):
            return forecast(x[:, :context], horizon)
        seen = Sequences(x.modalities, None, x.lengths).window([0] * len(x), context).trimmed()
        return forecast(seen, horizon, controls=None if x.controls is None else x.controls[:, : context + horizon])

    predicted = collect(ahead, observations, batch)
    return Latents(predicted.mean, predicted.cov), {
        name: target[:, context : context + horizon] for name, target in targets.items()
    }


def long_enough(part: Part, context: int) -> Part:
    """The sequences that go on after the context."""
    longer = np.flatnonzero(part.lengths > context)
    if not len(longer):
        raise ValueError(f"no sequence has more than the {context} frames of the context: choose a smaller one")
    return part if len(longer) == len(part) else part.take(longer)


def agreement(
    predicted: Float[np.ndarray, "n horizon k"],
    found: Float[np.ndarray, "n horizon k"],
    exist: Bool[np.ndarray, "n horizon"],
) -> Float[np.ndarray, " horizon"]:
    """R² of predicted latents against those found later, over all dimensions together; NaN where nothing varies."""
    curve = np.full(predicted.shape[1], np.nan)
    for h in range(len(curve)):
        a, b = predicted[exist[:, h], h], found[exist[:, h], h]
        spread = ((b - b.mean(0)) ** 2).sum() if len(b) else 0.0
        if spread > 0:
            curve[h] = 1 - ((a - b) ** 2).sum() / spread
    return curve


def forecast_scores(
    readout: LinearReadout, predicted: Latents, targets: Targets, misfit: Misfit | None = None
) -> dict[str, ForecastScores]:
    """Score forecasts (N, horizon, K) against the targets (N, horizon, d) of the same frames.

    R² is NaN at a horizon where fewer than two frames are known.
    """
    decoded = readout.predict(predicted.mean)
    variance = None if predicted.cov is None else readout.variance(predicted.cov)
    if variance is not None and misfit is not None:
        variance = misfit(variance)
    out = {}
    for name, truth in targets.items():
        if truth.shape[:2] != predicted.mean.shape[:2]:
            raise ValueError(
                f"target {name!r} has shape {truth.shape}, but {predicted.mean.shape[1]} frames of "
                f"{predicted.mean.shape[0]} sequences were forecast: cut the targets to the forecast frames"
            )
        there = known(truth)
        steps = range(truth.shape[1])
        curve = [_score(truth[:, h], decoded[name][:, h], there[:, h]) for h in steps]
        covered = {}
        if variance is not None:
            errors = standardised_errors(truth.astype(np.float64), decoded[name], variance[name])
            inside = [errors[there[:, h], h] for h in steps]
            covered = {
                f"{level:.0%}": np.array([coverage(e, level) if len(e) else np.nan for e in inside]) for level in LEVELS
            }
        out[name] = ForecastScores(np.array(curve), covered)
    return out


def _score(truth: np.ndarray, decoded: np.ndarray, there: np.ndarray) -> float:
    """R² of one horizon; NaN where too few sequences are known, or all are equal in a dimension."""
    varies = there.sum() > 1 and bool((np.ptp(truth[there], axis=0) > 0).all())
    return r_squared(truth, decoded) if varies else float("nan")
