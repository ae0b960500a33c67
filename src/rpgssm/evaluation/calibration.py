"""Does the model know how wrong it is? Standardised errors of decoded targets, and coverage of intervals.

The latents' covariance Σ becomes the variance w'Σw of a decoded target. If the posterior is right and the target is
linear in the latents, errors divided by its root are standard normal, and a 90 % interval covers 90 % of the truth. A
target that is not linear in the latents has a second source of error, the misfit of the readout: what its variance on
the training data has beyond the mean of w'Σw. Scores are given without it (`misfit=None`) and with it.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtri

from .latents import Latents
from .regression import LinearReadout, Targets

LEVELS = (0.5, 0.9)


@dataclass(frozen=True)
class Calibration:
    """Of one target: mean and standard deviation of the standardised errors, and the coverage at each level."""

    error_mean: float
    error_std: float
    coverage: dict[str, float]


def standardised_errors(
    truth: Float[np.ndarray, "*lead d"], predicted: Float[np.ndarray, "*lead d"], variance: Float[np.ndarray, "*lead d"]
) -> Float[np.ndarray, "*lead d"]:
    return (truth - predicted) / np.sqrt(np.maximum(variance, 1e-12))


def coverage(errors: Float[np.ndarray, "*shape"], level: float) -> float:
    """The fraction of standardised errors inside the central interval that should hold `level` of them."""
    return float((np.abs(errors) <= ndtri(0.5 + level / 2)).mean())


def misfit_variance(readout: LinearReadout, latents: Latents) -> Targets:
    """What the readout's residuals have beyond the posterior's variance, on the data the readout was fitted to."""
    if latents.cov is None:
        raise ValueError("the latents have no covariances, so there is no variance to compare residuals with")
    posterior = readout.variance(latents.cov)
    return {name: np.maximum(residual - posterior[name].mean((0, 1)), 0) for name, residual in readout.residual.items()}


def calibrate(
    readout: LinearReadout, latents: Latents, targets: Targets, misfit: Targets | None = None
) -> dict[str, Calibration]:
    """Calibration of each target on held-out sequences."""
    if latents.cov is None:
        raise ValueError("the latents have no covariances: there is no uncertainty to calibrate")
    predicted, variance = readout.predict(latents.mean), readout.variance(latents.cov)
    out = {}
    for name, truth in targets.items():
        extra = 0.0 if misfit is None else misfit[name]
        errors = standardised_errors(truth.astype(np.float64), predicted[name], variance[name] + extra)
        covered = {f"{level:.0%}": coverage(errors, level) for level in LEVELS}
        out[name] = Calibration(float(errors.mean()), float(errors.std()), covered)
    return out
