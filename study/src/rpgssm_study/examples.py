"""Examples for figures, of single films: reconstructions, a forecast with its uncertainty, paths over backgrounds.

Stored with the results, for the tasks whose figures need them, so that figures can be drawn without any model.
"""

from typing import Any

import numpy as np

from rpgssm.evaluation import LinearReadout, Misfit, look_ahead
from rpgssm.evaluation import collect as collect_latents
from rpgssm_study.tasks import Task

from .methods import METHODS
from .pictures import picture
from .runs import Run
from .scoring import means, variants

CONTEXT = 50
MOMENTS = 8  # frames of the film that is reconstructed
FILMS = 3  # whose forecasts are stored; figures show the first


def collect(
    estimator: Any, task: Task, run: Run, train: np.ndarray, data_dir: Any = None, drawn: Any = None
) -> dict[str, Any]:
    """The examples of a task; none for most. `train` are the smoothed means of the training sequences.

    `drawn` are reconstructions of the same model if there are some already: an auxiliary decoder takes minutes.
    """
    if run.task == "cifar10-pendulum":
        out: dict[str, Any] = {}
        if METHODS[run.method].decoder == "own" or run.decoder_steps:
            out["reconstructions"] = drawn or reconstructions(estimator, task, run)
        if hasattr(estimator, "forecast"):
            out["forecast"] = forecast(estimator, task)
        return out
    if run.task == "davis-tracking":
        return {"paths": paths(estimator, task, run, train, data_dir)}
    return {}


def reconstructions(estimator: Any, task: Task, run: Run) -> dict[str, Any]:
    """Frames of the first test film, and what a decoder makes of their latents."""
    auxiliary = METHODS[run.method].decoder == "auxiliary"
    if auxiliary:
        estimator.fit_decoder(task.train.observations[:200], steps=run.decoder_steps)
    film = task.test.observations[:1]
    moments = np.linspace(0, film.shape[1] - 1, min(MOMENTS, film.shape[1])).round().astype(int)
    decoded = np.asarray(estimator.reconstruct(film))[0]
    return {
        "decoder": "auxiliary" if auxiliary else "own",
        "moments": moments.tolist(),
        "seen": picture(task.frames(film[0][moments])),
        "decoded": picture(decoded[moments]),
    }


def forecast(estimator: Any, task: Task) -> dict[str, Any]:
    """Targets decoded from the latents of the first frames, and from those forecast after them."""
    steps = task.test.time - CONTEXT
    train = collect_latents(estimator.smooth, task.train.observations)
    readout = LinearReadout.fit(train.mean, task.train.targets)
    films = task.test.observations[:FILMS, :CONTEXT]
    seen, ahead = (
        collect_latents(estimator.smooth, films),
        collect_latents(lambda x: estimator.forecast(x, steps), films),
    )
    deviation = None
    if train.cov is not None and seen.cov is not None and ahead.cov is not None:
        past = Misfit.fit(readout, train, task.train.targets).deviation(readout, seen.cov)
        learnt, truth = look_ahead(estimator.forecast, task.train.observations, task.train.targets, CONTEXT, steps)
        future = Misfit.fit(readout, learnt, truth, by_frame=True).deviation(readout, ahead.cov)
        deviation = {name: np.concatenate([past[name], future[name]], 1) for name in past}
    decoded = readout.predict(np.concatenate([seen.mean, ahead.mean], 1))
    return {
        "context": CONTEXT,
        "dt": task.dt,
        "truth": {name: y[:FILMS].tolist() for name, y in task.test.targets.items()},
        "mean": {name: y.tolist() for name, y in decoded.items()},
        "deviation": None if deviation is None else {name: y.tolist() for name, y in deviation.items()},
    }


def paths(estimator: Any, task: Task, run: Run, train: np.ndarray, data_dir: Any) -> dict[str, Any]:
    """The position of the rat in the first test film, as inferred before five backgrounds."""
    shown = variants(task, run, data_dir, n=1)
    assert shown is not None
    readout = LinearReadout.fit(train, task.train.targets)
    inferred = [readout.predict(means(estimator, film))["position"][0] for film in shown]
    return {"truth": task.test.targets["position"][0].tolist(), "inferred": [y.tolist() for y in inferred]}
