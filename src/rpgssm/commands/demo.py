"""`rpgssm demo`: a pendulum in front of a new random background in every frame, learned and reported.

Nobody tells the model what a pendulum is. It sees images only; angles and velocities are used afterwards, to see by a
linear regression whether the latents hold them, and whether the principal components of the pixels hold them as well.
"""

import time
from typing import Any

import numpy as np

from rpgssm.estimator import RPGSSM
from rpgssm.evaluation import LinearReadout, Misfit, calibrate, collect, forecast_scores, look_ahead
from rpgssm.experiments.recipes import recipe
from rpgssm.tasks import Task, load_task
from rpgssm.tasks.pendulum import GRAVITY
from rpgssm.tasks.pendulum import draw as draw_pendulum

from . import config as c
from .demo_report import Findings, Track, score_rows, write_report

TASK, CONTEXT = "cifar10-pendulum", 50
SETTINGS = recipe("pendulum")  # procedural backgrounds do not need the longer one of photographs
SIZES: dict[str, Any] = {"n_train": 300, "n_validation": 8, "n_test": 50}
DECODER = (100, 200, 4e-3)  # films, steps and learning rate: half a minute


def demo(command: c.Demo) -> None:
    folder = command.output
    if folder.is_dir() and any(folder.iterdir()) and not command.overwrite:
        raise ValueError(f"{folder} is not empty: choose another folder with -o, or pass --overwrite")
    print(f"Drawing {SIZES['n_train']} films of a pendulum, with a new random background in each frame ...", flush=True)
    task = load_task(TASK, background="procedural", cache=False, **SIZES)
    settings: dict[str, Any] = SETTINGS | {"max_steps": command.steps, "widen_steps": _later(command.steps)}
    model = RPGSSM(**settings)
    print(f"Learning from the images alone, {model.all_steps} steps ...", flush=True)
    began = time.perf_counter()
    model.fit(task.train.observations)
    seconds = time.perf_counter() - began
    print("Training a decoder on the latents found, to see what they hold ...", flush=True)
    films, steps, rate = DECODER
    model.fit_decoder(task.train.observations[:films], steps=steps, learning_rate=rate)
    model.save(folder / "model", overwrite=True)
    found = examine(task, model, seconds)
    report = write_report(found, folder)
    print(f"\nTrained in {seconds / 60:.1f} minutes. Held-out linear R² of what was never shown:\n")
    print(_aligned(score_rows(found)))
    print(f"\nReport:  {report} (one file; open it in a browser)\nModel:   {folder / 'model'}")
    print(f'Use it:  RPGSSM.load("{folder / "model"}").transform(videos)')


def _later(steps: int) -> int:
    """Steps of the second training, in the proportion of the recipe."""
    return max(1, steps * SETTINGS["widen_steps"] // SETTINGS["max_steps"])


def examine(task: Task, model: Any, seconds: float | int) -> Findings:
    """All that the report tells, from a fitted model with a decoder."""
    train = collect(model.smooth, task.train.observations)
    test = collect(model.smooth, task.test.observations)
    readout = LinearReadout.fit(train.mean, task.train.targets)
    misfit = Misfit.fit(readout, train, task.train.targets)

    seen = collect(model.smooth, task.test.observations[:, :CONTEXT])
    steps = task.test.time - CONTEXT
    (learnt, truth), (ahead, future) = (
        look_ahead(model.forecast, split.observations, split.targets, CONTEXT, steps)
        for split in (task.train, task.test)
    )
    widening = Misfit.fit(readout, learnt, truth, by_frame=True)
    return Findings(
        dt=task.dt or 1.0,
        swing=float(2 * np.pi / np.sqrt(GRAVITY)),
        context=CONTEXT,
        films=len(task.train),
        held_out=len(task.test),
        seconds=float(seconds),
        components=model.latent_dim,
        truth=task.test.targets,
        smoothed=_track(readout, test, misfit),
        seen=_track(readout, seen, misfit),
        ahead=_track(readout, ahead, widening),
        r_squared=readout.score(test.mean, task.test.targets),
        pixels=pixel_scores(task, model.latent_dim),
        covered={name: s.coverage["90%"] for name, s in calibrate(readout, test, task.test.targets, misfit).items()},
        horizon={name: s.r_squared for name, s in forecast_scores(readout, ahead, future, widening).items()},
        transition=model.transition_,
        history=model.history_,
        changed=int(model.max_steps),
        kept=int(model.best_step_),
        frames=task.frames(task.test.observations[:3])[..., 0],
        decoded=np.asarray(model.decode(test.mean[0]))[..., 0],
        bare=draw_pendulum(task.test.states["angle"][:1, :, 0].astype(np.float64))[0] / 255,
    )


def pixel_scores(task: Task, components: int) -> dict[str, float]:
    """Held-out R² of a linear readout of the pixels' principal components, as many as there are latents."""
    from sklearn.decomposition import PCA

    train, test = (task.frames(split.observations) for split in (task.train, task.test))
    pca = PCA(components, random_state=0).fit(train.reshape(-1, train[0, 0].size))

    def projected(frames: np.ndarray) -> np.ndarray:
        return pca.transform(frames.reshape(-1, frames[0, 0].size)).reshape(*frames.shape[:2], components)

    return LinearReadout.fit(projected(train), task.train.targets).score(projected(test), task.test.targets)


def _track(readout: LinearReadout, latents: Any, misfit: Misfit) -> Track:
    return Track(readout.predict(latents.mean), misfit.deviation(readout, latents.cov))


def _aligned(rows: list[list[str]]) -> str:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = []
    for first, *rest in rows:
        cells = [first.ljust(widths[0]), *(cell.rjust(w) for cell, w in zip(rest, widths[1:], strict=True))]
        lines.append("  " + "   ".join(cells))
    return "\n".join(lines)
