"""How far ahead a model sees: R² and coverage against horizon.

Forecast latents are decoded through the regression that was fitted on smoothed training latents; only the width of the
intervals may be fitted, to forecasts of training sequences (`Misfit` by frame). At horizon h the score is over all
sequences' h-th frame after the context.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from jaxtyping import Float, Shaped

from .calibration import LEVELS, Misfit, coverage, standardised_errors
from .latents import Latents, collect
from .regression import LinearReadout, Targets, r_squared


@dataclass(frozen=True)
class ForecastScores:
    """Of one target: R² and, where there are covariances, coverage at each horizon (the first is one frame ahead)."""

    r_squared: Float[np.ndarray, " horizon"]
    coverage: dict[str, np.ndarray]


def look_ahead(
    forecast: Callable[[np.ndarray, int], Any],
    observations: Shaped[np.ndarray, "n t *frame"],
    targets: Targets,
    context: int,
    horizon: int,
    batch: int = 50,
) -> tuple[Latents, Targets]:
    """Forecasts from the first `context` frames, and the targets of the `horizon` frames that were forecast."""
    if context < 1 or horizon < 1 or context + horizon > observations.shape[1]:
        raise ValueError(
            f"context = {context} and horizon = {horizon} do not fit into sequences of {observations.shape[1]} frames"
        )
    ahead = collect(lambda x: forecast(x, horizon), observations[:, :context], batch)
    return ahead, {name: target[:, context : context + horizon] for name, target in targets.items()}


def forecast_scores(
    readout: LinearReadout, predicted: Latents, targets: Targets, misfit: Misfit | None = None
) -> dict[str, ForecastScores]:
    """Score forecasts (N, horizon, K) against the targets (N, horizon, d) of the same frames."""
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
        steps = range(truth.shape[1])
        curve = np.array([r_squared(truth[:, h], decoded[name][:, h]) for h in steps])
        covered = {}
        if variance is not None:
            errors = standardised_errors(truth.astype(np.float64), decoded[name], variance[name])
            covered = {f"{level:.0%}": np.array([coverage(errors[:, h], level) for h in steps]) for level in LEVELS}
        out[name] = ForecastScores(curve, covered)
    return out
