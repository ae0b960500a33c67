"""What a model knows while it is trained: `python benchmarks/learning_curve.py TASK [EVERY] [name=value ...]`.

Trains an RP-GSSM with the recipe of the task, changed by the settings given, and prints every so many steps: R² on the
validation sequences by linear and by kernel ridge regression, how many directions the latents fill (standard deviation
of the posterior means above 0.3), how many eigenvalues of A have a real part below -0.3, and the standard deviation of
each target's error in units of the posterior's (1 is right; less: the model is less sure than it could be). No test
sequence is used.

`timescales=3,100` lets A start at exp(-1/τ) on its diagonal, τ from 3 to 100 frames, each of them for two latents.
"""

import ast
import sys
from typing import Any

import numpy as np

from rpgssm import RPGSSM
from rpgssm.evaluation import KernelReadout, LinearReadout, calibrate, collect
from rpgssm.experiments.recipes import recipe
from rpgssm.tasks import load_task

FITTED = 200  # training sequences for the regressions


class Printer:
    def __init__(self, task: Any, every: int) -> None:
        self.task, self.every, self.next = task, every, every

    def __call__(self, estimator, report) -> None:
        if report.step < self.next or not report.rows:
            return
        self.next = report.step + self.every
        loss, seconds = report.rows[-1]["loss"], report.rows[-1]["seconds"]
        print(f"{report.step:6d}  {seconds:5.0f} s  loss {loss:.3f}  {scores(estimator, self.task)}", flush=True)


def scores(estimator: Any, task: Any) -> str:
    """What is printed of a model: see above."""
    train, held_out = task.train, task.validation
    seen = collect(estimator.smooth, held_out.observations)
    means = [estimator.transform(train.observations[:FITTED]), seen.mean]
    targets = {name: x[:FITTED] for name, x in train.targets.items()}
    readout = LinearReadout.fit(means[0], targets)
    linear = readout.score(means[1], held_out.targets)
    errors = calibrate(readout, seen, held_out.targets)
    kernel = KernelReadout(means[0], targets).score(means[1], held_out.targets)
    flat = means[0].reshape(-1, means[0].shape[-1])
    filled = np.linalg.svd(flat - flat.mean(0), compute_uv=False) / np.sqrt(len(flat)) > 0.3
    negative = np.linalg.eigvals(np.asarray(estimator.model_.prior.chain(2).A)).real < -0.3
    found = "  ".join(
        f"{name} {linear[name]:.3f} ({kernel[name]:.3f}, {errors[name].error_std:.2f})" for name in linear
    )
    return f"linear (kernel, error) R²: {found}  filled {filled.sum()}  negative {negative.sum()}"


def settings_from(rest: tuple[str, ...], default: int) -> tuple[int, dict[str, Any]]:
    """The number that may come first, and the settings `name=value`."""
    number = int(rest[0]) if rest and "=" not in rest[0] else default
    given = dict(word.split("=", 1) for word in rest if "=" in word)
    return number, {key: _value(text) for key, text in given.items()}


def main(name: str, *rest: str) -> None:
    every, changes = settings_from(rest, 100)
    task = load_task(name)
    timescales = changes.pop("timescales", None)
    settings: dict[str, Any] = recipe(name) | changes
    print(name, settings, *([] if timescales is None else ["time scales", timescales]), flush=True)
    if timescales is not None:
        decay = np.exp(-1 / np.geomspace(*timescales, settings["latent_dim"] // 2))
        settings |= {"initial_transition": np.diag(np.repeat(decay, 2)), "initial_scale": 0.999}
    estimator = RPGSSM(**settings, verbose=False)
    estimator.fit(task.train.observations, validation=task.validation.observations, callbacks=[Printer(task, every)])


def _value(text: str) -> Any:
    try:
        return ast.literal_eval(text)
    except ValueError:
        return text


if __name__ == "__main__":
    main(*sys.argv[1:])
