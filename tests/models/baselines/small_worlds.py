"""Data of which the latents are known, and how well they can be read off."""

from itertools import pairwise

import numpy as np


def rotation(angle: float, scale: float = 1.0) -> np.ndarray:
    c, s = np.cos(angle), np.sin(angle)
    return scale * np.array([[c, -s], [s, c]])


def turning(n=64, t=40, seed=0, noise=0.3, angle=0.4, scale=0.95) -> tuple[np.ndarray, np.ndarray]:
    """Two stationary latents that turn, seen through 6 noisy numbers: observations and latents."""
    rng, B = np.random.default_rng(seed), rotation(angle, scale)
    C = np.random.default_rng(7).normal(size=(6, 2))
    z = rng.normal(size=(n, t, 2))
    for i in range(1, t):
        z[:, i] = z[:, i - 1] @ B.T + (1 - scale**2) ** 0.5 * z[:, i]
    return (z @ C.T + noise * rng.normal(size=(n, t, 6))).astype(np.float32), z


def linear_r2(latents, z) -> float:
    """R² of a linear readout, fitted on the first half of the sequences and scored on the rest."""
    half, parts = len(latents) // 2, []
    for y in (latents[:half], latents[half:]):
        flat = np.concatenate([np.asarray(row, float) for row in y])
        parts.append(np.concatenate([flat, np.ones((len(flat), 1))], 1))
    first, second = np.concatenate(list(z[:half])), np.concatenate(list(z[half:]))
    error = ((second - parts[1] @ np.linalg.lstsq(parts[0], first, rcond=None)[0]) ** 2).sum(0)
    return float(np.mean(1 - error / ((second - second.mean(0)) ** 2).sum(0)))


def score_on_linear_medium(model) -> float:
    """Held-out R² of a linear readout on the task linear-medium, as a user would get it."""
    from rpgssm.evaluation import LinearReadout
    from rpgssm.tasks import load_task

    task = load_task("linear-medium", cache=False)
    model.fit(task.train.observations)
    train, test = (model.transform(split.observations) for split in (task.train, task.test))
    return LinearReadout.fit(train, task.train.targets).score(test, task.test.targets)["z"]


def falls_on_average(loss) -> bool:
    """Whether no quarter of training has a higher mean loss than the one before, but for 2 % of all that is gained."""
    quarters = [np.mean(part) for part in np.array_split(np.asarray(loss), 4)]
    gained = loss[0] - quarters[-1]
    return gained > 0 and all(b < a + 0.02 * gained for a, b in pairwise(quarters))
