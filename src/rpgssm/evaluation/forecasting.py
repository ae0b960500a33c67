"""How far ahead a model sees: R² and coverage against horizon.

Forecast latents are decoded through the regression that was fitted on smoothed training latents; nothing is fitted to
forecasts. At horizon h the score is over all sequences' h-th frame after the context.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float

from .calibration import LEVELS, Misfit, coverage, standardised_errors
from .latents import Latents
from .regression import LinearReadout, Targets, r_squared


@dataclass(frozen=True)
class ForecastScores:
    """Of one target: R² and, where there are covariances, coverage at each horizon (the first is one frame ahead)."""

    r_squared: Float[np.ndarray, " horizon"]
    coverage: dict[str, np.ndarray]


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
