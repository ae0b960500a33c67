"""Which functions of two angles a line can read: `python benchmarks/harmonics.py [TASK] [name=value ...]`.

Trains the RP-GSSM of the recipe of `double-pendulum` (or of `cifar10-double-pendulum`, changed by settings) and prints
the R² on validation sequences of a line from the latents to sin(m a + n b), averaged with that to the cosine, where a
is the angle of the first arm and b that of the second; and beside it the correlation of that function between
neighbouring frames, which says how predictable it is. No test sequence is used.
"""

import sys
from typing import Any

import numpy as np
from learning_curve import settings_from

from rpgssm import RPGSSM
from rpgssm.evaluation import LinearReadout
from rpgssm.experiments.recipes import recipe
from rpgssm.tasks import load_task

HIGHEST = 3


def waves(states: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The sine and cosine of m a + n b for small m and n, (N, T, 2) each."""
    a, b = states["angle_first"], states["angle_second"]
    out = {}
    for m in range(HIGHEST + 1):
        for n in range(-HIGHEST if m else 1, HIGHEST + 1):
            if 0 < m + abs(n) <= HIGHEST:
                phase = m * a + n * b
                out[f"{m:d} a {n:+d} b"] = np.concatenate([np.sin(phase), np.cos(phase)], -1)
    return out


def main(*rest: str) -> None:
    name = rest[0] if rest and "=" not in rest[0] else "double-pendulum"
    _, changes = settings_from(tuple(word for word in rest if "=" in word), 0)
    task = load_task(name)
    settings: dict[str, Any] = recipe(name) | changes
    print(name, settings, flush=True)
    model = RPGSSM(**settings, verbose=False).fit(task.train.observations, validation=task.validation.observations)
    known, held_out = waves(task.train.states), waves(task.validation.states)
    readout = LinearReadout.fit(model.transform(task.train.observations), known)
    scores = readout.score(model.transform(task.validation.observations), held_out)
    for wave, score in scores.items():
        x = known[wave] - known[wave].mean((0, 1))
        predictable = float((x[:, 1:] * x[:, :-1]).sum() / (x**2).sum())
        print(f"{wave:>10}   R² {score:6.3f}   correlation of neighbouring frames {predictable:.3f}")


if __name__ == "__main__":
    main(*sys.argv[1:])
