"""How well could one do, knowing everything? Ceilings for the tasks where that can be computed.

Linear tasks: the exact Kalman smoother with the true parameters. The emission x ~ N(Cz + d, R) is a potential on z with
h = C'R⁻¹(x - d) and Λ = C'R⁻¹C, so the package's own smoother does it. Its posterior means are the best estimates there
are, and their R² the most that any model can reach (up to chance on a finite test set).

Pendulum: the unscented smoother in `pendulum_smoother.py`, which knows the physics and sees the angle with noise.
"""

from functools import cache

import numpy as np
from jaxtyping import Float

from rpgssm.datasets.drawing import resized_bar
from rpgssm.datasets.pendulums import PIXEL_NOISE, VECTOR_NOISE
from rpgssm.evaluation.latents import Latents
from rpgssm.evaluation.regression import LinearReadout, mean_score, r_squared
from rpgssm_study.tasks import Split, Task

from .pendulum_smoother import smooth_pendulum

_BATCH = 50
"""Sequences smoothed at once: always as many, so that the smoother is compiled once for a task."""


def exact_smoother(task: Task, split: Split) -> Latents:
    """Posterior of a linear task's latents under its true parameters."""
    if "C" not in task.parameters:
        raise ValueError(f"{task.name} is not a linear task: its true parameters are not known")
    p = task.parameters
    weights = np.linalg.solve(p["R"], p["C"])
    h = (split.observations - p["d"]) @ weights
    whole = np.zeros((-(-len(h) // _BATCH) * _BATCH, *h.shape[1:]))
    whole[: len(h)] = h
    smooth = _compiled_smoother()
    parts = [smooth(p["B"], p["C"].T @ weights, whole[i : i + _BATCH]) for i in range(0, len(whole), _BATCH)]
    mean = np.concatenate([np.asarray(m, np.float64) for m, _ in parts])[: len(h)]
    return Latents(mean, np.broadcast_to(np.asarray(parts[0][1], np.float64), (*mean.shape, mean.shape[-1])))


@cache
def _compiled_smoother():
    import jax
    import jax.numpy as jnp

    from rpgssm.core import Potentials, Precision, StationaryChain, smooth

    @jax.jit
    def run(B, precision, h):
        chain = StationaryChain(jnp.asarray(B))
        posterior = smooth(chain, Potentials(jnp.asarray(h), Precision(precision, shared=True, diagonal=False)))
        return posterior.mean, posterior.cov

    return run


def linear_ceiling(task: Task) -> dict[str, float]:
    """Held-out R² of the exact smoother, read out by regression as every model is."""
    train, test = exact_smoother(task, task.train), exact_smoother(task, task.test)
    return LinearReadout.fit(train.mean, task.train.targets).score(test.mean, task.test.targets)


def angle_noise(pixel_noise: float = PIXEL_NOISE, angles: int = 720) -> float:
    """The angle's standard deviation that one noisy frame of the pendulum allows (the Cramér-Rao bound).

    The information about θ in an image with independent normal noise is Σ (∂image/∂θ)² / noise², averaged here over
    angles. Frames are drawn pixel by pixel, so the derivative is taken over a step of one degree.
    """
    step = np.deg2rad(1.0)
    theta = np.linspace(-np.pi, np.pi, angles, endpoint=False)
    slope = (resized_bar(theta + step / 2) - resized_bar(theta - step / 2)) / step
    information = (slope.astype(np.float64) ** 2).sum((1, 2)) / pixel_noise**2
    return float(1 / np.sqrt(information.mean()))


def pendulum_ceiling(task: Task, *, noise: float | None = None, seed: int = 0) -> dict[str, float]:
    """R² of an unscented smoother that knows the physics and sees (sin θ, cos θ) with noise.

    For pendulum-vector it sees the observations themselves. For images it sees what one frame says about the angle:
    `noise` radians, by default as much as the pixel noise allows. That is the ceiling of an encoder that loses nothing;
    with backgrounds, where what one frame says is not known, it is an upper bound.
    """
    angle = task.test.states["angle"][..., 0].astype(np.float64)
    if task.name == "pendulum-vector" and noise is None:
        seen, noise = task.test.observations.astype(np.float64), VECTOR_NOISE
    else:
        noise = angle_noise() if noise is None else noise
        seen = _noisy_direction(angle, noise, seed)
    latents = smooth_pendulum(seen, noise)
    theta, variance = latents.mean[..., :1], latents.cov[..., 0, :1] if latents.cov is not None else 0.0
    sine = np.sin(theta) * np.exp(-variance / 2)  # E sin θ of a normal θ
    return {
        "sin_angle": r_squared(task.test.targets["sin_angle"], sine),
        "velocity": r_squared(task.test.targets["velocity"], latents.mean[..., 1:]),
    }


def ceiling(task: Task) -> dict[str, float] | None:
    """The ceiling where there is one, with the mean over targets; None where none is known."""
    if "C" in task.parameters:
        scores = linear_ceiling(task)
    elif "angle" in task.test.states and "sin_angle" in task.test.targets:
        scores = pendulum_ceiling(task)
    else:
        return None
    return scores | {"mean": mean_score(scores, task.secondary)}


def _noisy_direction(angle: Float[np.ndarray, "n t"], noise: float, seed: int) -> Float[np.ndarray, "n t 2"]:
    rng = np.random.default_rng(seed)
    direction = np.stack([np.sin(angle), np.cos(angle)], -1)
    return direction + noise * rng.standard_normal(direction.shape)
