"""All scores of a fitted model: one pass over the training sequences, one over the test sequences, and forecasts.

The readouts are fitted on the latents of the training sequences. Everything that is scored, and everything that figures
show, comes from the same arrays, which are kept.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from jaxtyping import Float, Int

from .calibration import Calibration, Misfit, calibrate
from .forecasting import ForecastScores, agreement, forecast_scores, long_enough, look_ahead
from .labelled import Part
from .latents import Latents, Marginals, Smoother, collect
from .regression import KernelReadout, LinearReadout, Targets

Scores = dict[str, float]


@dataclass(frozen=True)
class Forecasts:
    """Forecasts from the first `context` frames of the test sequences that are longer than that (`rows`).

    `latents` has the R² by horizon of forecast latents against those found by smoothing whole sequences. Fields of
    targets are None if there are no targets, `deviation` also if the forecasts have no covariances.
    """

    context: int
    rows: Int[np.ndarray, " m"] = field(repr=False)
    predicted: Latents = field(repr=False)
    latents: Float[np.ndarray, " horizon"]
    scores: dict[str, ForecastScores] | None = None
    truth: Targets | None = field(default=None, repr=False)
    decoded: Targets | None = field(default=None, repr=False)
    deviation: Targets | None = field(default=None, repr=False)


@dataclass(frozen=True)
class Evaluation:
    """Scores by target, and the arrays that they are of. What a model cannot do is None.

    `filtered` and `filtering` need a model with `filter`, `forecast` one with `forecast`, `calibration` and `deviation`
    one whose latents have covariances. Without targets there are only latents and `forecast`. `calibration` is that of
    the posterior alone ("posterior") and with the readout's misfit ("with_misfit"); `deviation` is with it.
    """

    train: Latents | None = field(repr=False)
    test: Latents = field(repr=False)
    filtered: Latents | None = field(repr=False)
    truth: Targets = field(repr=False)
    readout: LinearReadout | None = field(default=None, repr=False)
    misfit: Misfit | None = field(default=None, repr=False)
    linear: Scores | None = None
    kernel: Scores | None = None
    filtering: Scores | None = None
    calibration: dict[str, dict[str, Calibration]] | None = None
    forecast: Forecasts | None = None
    decoded: Targets | None = field(default=None, repr=False)
    deviation: Targets | None = field(default=None, repr=False)


def evaluate(
    model: Smoother,
    train: object | None,
    test: object,
    *,
    context: int | None = None,
    horizon: int | None = None,
    seed: int = 0,
    batch: int = 50,
) -> Evaluation:
    """Score a fitted model on test sequences; readouts are fitted on training sequences.

    `train` and `test` are data sets (`rpgssm.datasets`), `Labelled` arrays, or observations alone. Without targets
    there is no readout, and `train` may be None. Frames with NaN in a target are left out of its scores. Forecasts are
    made from the first `context` frames for `horizon` frames: by default from half of the longest test sequence, for
    the other half. `batch` sequences are shown at a time, and
    `seed` chooses the frames that the kernel readout is fitted to.
    """
    held_out = Part.of(model, test)
    learnt = None if train is None else Part.of(model, train)
    if (names := set(held_out.targets)) != (given := set() if learnt is None else set(learnt.targets)):
        raise ValueError(
            f"the training sequences have the targets {sorted(given)}, the test sequences {sorted(names)}: both need "
            "the same"
        )
    batch = min(batch, max(len(held_out), 0 if learnt is None else len(learnt)))
    seen = None if learnt is None else collect(model.smooth, learnt.observations, batch)
    found = collect(model.smooth, held_out.observations, batch)
    ask = getattr(model, "filter", None)
    filtered = None if ask is None else collect(ask, held_out.observations, batch)
    readout = misfit = None
    if learnt is not None and seen is not None and learnt.targets:
        readout = LinearReadout.fit(seen.mean, learnt.targets)
        misfit = None if seen.cov is None else Misfit.fit(readout, seen, learnt.targets)
    ahead, targets = None, held_out.targets
    forecast = getattr(model, "forecast", None)
    if forecast is not None:
        context = max(1, held_out.time // 2) if context is None else context
        horizon = max(1, held_out.time - context) if horizon is None else horizon
        ahead = _forecasts(forecast, learnt, held_out, found, readout, context, horizon, batch)
    if readout is None or learnt is None or seen is None:
        return Evaluation(seen, found, filtered, targets, forecast=ahead)
    calibration = deviation = None
    if found.cov is not None:
        calibration = {"posterior": calibrate(readout, found, targets)}
        calibration["with_misfit"] = calibrate(readout, found, targets, misfit)
        deviation = None if misfit is None else misfit.deviation(readout, found.cov)
    return Evaluation(
        seen,
        found,
        filtered,
        targets,
        readout,
        misfit,
        readout.score(found.mean, targets),
        KernelReadout(seen.mean, learnt.targets, seed=seed).score(found.mean, targets),
        None if filtered is None else readout.score(filtered.mean, targets),
        calibration,
        ahead,
        readout.predict(found.mean),
        deviation,
    )


def _forecasts(
    forecast: Callable[..., Marginals],
    learnt: Part | None,
    held_out: Part,
    found: Latents,
    readout: LinearReadout | None,
    context: int,
    horizon: int,
    batch: int,
) -> Forecasts:
    """Forecasts of the test sequences; those of training sequences only say how wide the intervals have to be."""

    def ahead(of: Part, steps: int) -> tuple[Latents, Targets]:
        longer = long_enough(of, context)
        return look_ahead(forecast, longer.observations, longer.targets, context, steps, batch)

    predicted, truth = ahead(held_out, horizon)
    rows, frames = np.flatnonzero(held_out.lengths > context), slice(context, context + horizon)
    latents = agreement(predicted.mean, found.mean[rows, frames], found.exist()[rows, frames])
    if readout is None or learnt is None:
        return Forecasts(context, rows, predicted, latents)
    misfit = deviation = None
    if predicted.cov is not None and learnt.time > context:
        steps = min(horizon, learnt.time - context)
        misfit = Misfit.fit(readout, *ahead(learnt, steps), by_frame=True).until(horizon)
        deviation = misfit.deviation(readout, predicted.cov)
    scores = forecast_scores(readout, predicted, truth, misfit)
    return Forecasts(context, rows, predicted, latents, scores, truth, readout.predict(predicted.mean), deviation)
