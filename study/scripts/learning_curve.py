"""Scores of a model while it is trained: `python study/scripts/learning_curve.py TASK [EVERY] [name=value ...]`.

Trains the recipe of the task, changed by the settings given, and prints scores every so many steps: R² on the
validation sequences by linear and by kernel ridge regression, the number of directions that the latents fill (standard
deviation of the posterior means above 0.3), the number of eigenvalues of A with a real part below -0.3, and the
standard deviation of each target's error in units of the posterior's (1 is right; below 1, the model is less sure than
it could be). No test sequence is used.

Settings are those of `rpgssm.RPGSSM`, with objects written as in Python: `"prior=Prior(scale=0.9)"`. Those after the
word `then` are for the second stage; a recipe of one stage gets a second one, with the other settings of the first.
`stages=1` leaves out the second stage of the recipe.
"""

import sys
from collections.abc import Iterable
from typing import Any

import numpy as np

from rpgssm import RPGSSM, Stack
from rpgssm.evaluation import KernelReadout, LinearReadout, calibrate, collect
from rpgssm.settings import declared, parse, text
from rpgssm_study.recipes import recipe
from rpgssm_study.runs import stages
from rpgssm_study.tasks import load_task

FITTED = 200  # training sequences for the regressions


class Printer:
    """A callback that prints scores every so many steps."""

    def __init__(self, task: Any, every: int) -> None:
        self.task, self.every, self.next = task, every, every

    def __call__(self, estimator, report) -> None:
        if report.step < self.next or not report.rows:
            return
        self.next = report.step + self.every
        loss, seconds = report.rows[-1]["loss"], report.rows[-1]["seconds"]
        print(f"{report.step:6d}  {seconds:5.0f} s  loss {loss:.3f}  {scores(estimator, self.task)}", flush=True)


def scores(estimator: Any, task: Any) -> str:
    """The scores of a model as one line."""
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


def split_number(words: tuple[str, ...], default: int) -> tuple[int, list[str]]:
    """The number that may come first, and the other words."""
    return (int(words[0]), list(words[1:])) if words and words[0].isdigit() else (default, list(words))


def settings_of(words: Iterable[str]) -> dict[str, Any]:
    """Settings of an RP-GSSM from words `name=value`."""
    known, found = declared(RPGSSM), {}
    for name, value in (word.split("=", 1) for word in words):
        if name not in known:
            raise SystemExit(f"RPGSSM has no setting {name!r}: choose from {', '.join(known)}")
        found[name] = parse(value, known[name].kind)
    return found


def parts_of(words: Iterable[str]) -> list[list[str]]:
    """The words before, between and after each `then`."""
    parts: list[list[str]] = [[]]
    for word in words:
        if word == "then":
            parts.append([])
        else:
            parts[-1].append(word)
    return parts


def estimator_for(task: str, words: list[str]) -> RPGSSM | Stack:
    """The estimator of a task's recipe, changed by words."""
    found = [dict(part) for part in stages(recipe(task))]
    if "stages=1" in words:
        found, words = found[:1], [word for word in words if word != "stages=1"]
    for number, part in enumerate(parts_of(words)):
        if number == len(found):
            found.append(dict(found[0]))
        found[number] |= settings_of(part)
    made = [RPGSSM(**settings, verbose=False) for settings in found]
    return made[0] if len(made) == 1 else Stack(made)


def main(name: str, *rest: str) -> None:
    every, words = split_number(rest, 100)
    task, estimator = load_task(name), estimator_for(name, words)
    print(name, text(estimator), flush=True)
    estimator.fit(task.train.observations, validation=task.validation.observations, callbacks=[Printer(task, every)])


if __name__ == "__main__":
    main(*sys.argv[1:])
