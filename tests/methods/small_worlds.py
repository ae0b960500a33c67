"""Data of which the latents are known, and how well they can be read off."""

from itertools import pairwise

import numpy as np

from rpgssm.datasets import Dataset, load_dataset


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
    half = len(latents) // 2
    return readout_r2(latents[:half], z[:half], latents[half:], z[half:])


def readout_r2(latents, z, other_latents, other_z) -> float:
    """R² of a linear readout fitted on some sequences and scored on others, averaged over the dimensions of z."""
    parts = []
    for y in (latents, other_latents):
        flat = np.concatenate([np.asarray(row, float) for row in y])
        parts.append(np.concatenate([flat, np.ones((len(flat), 1))], 1))
    first, second = np.concatenate(list(z)), np.concatenate(list(other_z))
    error = ((second - parts[1] @ np.linalg.lstsq(parts[0], first, rcond=None)[0]) ** 2).sum(0)
    return float(np.mean(1 - error / ((second - second.mean(0)) ** 2).sum(0)))


def linear_medium() -> dict[str, Dataset]:
    """A linear system of 5 latents and 10 observed numbers: 500 sequences to fit, 100 each for validation and test."""
    sizes = {"train": 500, "validation": 100, "test": 100}
    return {split: load_dataset("linear-medium", split, n=n) for split, n in sizes.items()}


def score_on(data: dict[str, Dataset], transform) -> float:
    """R² of a linear readout of latents, fitted on the training data and scored on the test data."""
    train, test = (transform(data[split].observations) for split in ("train", "test"))
    return readout_r2(train, data["train"].targets["z"], test, data["test"].targets["z"])


def score_on_linear_medium(model) -> float:
    """Held-out R² of a linear readout on a linear system of 5 latents, as a user would get it."""
    data = linear_medium()
    return score_on(data, model.fit(data["train"].observations).transform)


def falls_on_average(loss) -> bool:
    """Whether no quarter of training has a higher mean loss than the one before, but for 2 % of all that is gained."""
    quarters = [np.mean(part) for part in np.array_split(np.asarray(loss), 4)]
    gained = loss[0] - quarters[-1]
    return gained > 0 and all(b < a + 0.02 * gained for a, b in pairwise(quarters))
