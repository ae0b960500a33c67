"""Does the model know how wrong it is? Standardised errors of decoded targets, and coverage of intervals.

The latents' covariance Σ becomes the variance w'Σw of a decoded target. If the posterior is right and the target is
linear in the latents, errors divided by its root are standard normal, and a 90 % interval covers 90 % of the truth. Two
things break that. A target that is not linear in the latents has a second source of error, the misfit of the readout:
its residuals on the training data have more variance than w'Σw has on average. And a least-squares readout that leans
on directions of little variance makes w'Σw larger than the residuals. `Misfit` holds what makes the two agree on the
training data: a variance to add, or a factor below one; for forecasts, one for every frame ahead, because both errors
grow with the horizon. Scores are given without it (`misfit=None`) and with it.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Bool, Float
from scipy.special import ndtri

from .latents import Latents
from .regression import LinearReadout, Targets, known

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


@dataclass(frozen=True)
class Misfit:
    """How the variance of each decoded target has to be changed to agree with the residuals: v → factor · v + extra.

    Both have a value for each dimension of a target, or (frames, dimensions) if they were fitted by frame.
    """

    factor: Targets
    extra: Targets

    @classmethod
    def fit(cls, readout: LinearReadout, latents: Latents, targets: Targets, *, by_frame: bool = False) -> "Misfit":
        """From latents and targets of training sequences; `by_frame`: each frame has its own."""
        if latents.cov is None:
            raise ValueError("the latents have no covariances, so there is no variance to compare residuals with")
        over = 0 if by_frame else (0, 1)
        decoded, variance = readout.predict(latents.mean), readout.variance(latents.cov)
        factor, extra = {}, {}
        for name, truth in targets.items():
            there = known(truth)
            residual = _mean((truth - decoded[name]) ** 2, there, over)
            expected = _mean(variance[name], there, over)
            extra[name] = np.maximum(residual - expected, 0)
            factor[name] = np.minimum(residual / np.maximum(expected, 1e-12), 1)
        return cls(factor, extra)

    def __call__(self, variance: Targets) -> Targets:
        return {name: self.factor[name] * v + self.extra[name] for name, v in variance.items()}

    def until(self, frames: int) -> "Misfit":
        """The same for more frames, if it was fitted by frame: those after the last are like the last."""

        def longer(by_frame: Targets) -> Targets:
            return {name: np.pad(x, [(0, frames - len(x)), (0, 0)], mode="edge") for name, x in by_frame.items()}

        return Misfit(longer(self.factor), longer(self.extra))

    def deviation(self, readout: LinearReadout, cov: Float[np.ndarray, "n t k k"]) -> Targets:
        """Standard deviation of the targets decoded from latents with these covariances."""
        return {name: np.sqrt(v) for name, v in self(readout.variance(cov)).items()}


def _mean(
    x: Float[np.ndarray, "n t d"], there: Bool[np.ndarray, "n t"], over: int | tuple[int, int]
) -> Float[np.ndarray, "*frames d"]:
    """The mean over frames in which the target is known; NaN where there are none."""
    if there.all():
        return x.mean(over)
    with np.errstate(invalid="ignore"):
        return np.where(there[..., None], x, 0).sum(over) / there.sum(over)[..., None]


def calibrate(
    readout: LinearReadout, latents: Latents, targets: Targets, misfit: Misfit | None = None
) -> dict[str, Calibration]:
    """Calibration of each target on held-out sequences."""
    if latents.cov is None:
        raise ValueError("the latents have no covariances: there is no uncertainty to calibrate")
    predicted, variance = readout.predict(latents.mean), readout.variance(latents.cov)
    if misfit is not None:
        variance = misfit(variance)
    out = {}
    for name, truth in targets.items():
        errors = standardised_errors(truth.astype(np.float64), predicted[name], variance[name])
        errors = errors[known(truth)]
        covered = {f"{level:.0%}": coverage(errors, level) for level in LEVELS}
        out[name] = Calibration(float(errors.mean()), float(errors.std()), covered)
    return out
