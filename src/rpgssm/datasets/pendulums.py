"""A pendulum: images of a swinging bar with pixel noise, with random textures behind it, or only sin θ and cos θ.

Physics: mass 1, length 1, g = 9.81, inertia 1/3, friction 0.1, no torque; semi-implicit Euler with step 1e-4; after
each frame (0.01 s) the velocity gets a kick. Angles start uniform on the circle, at rest; angle 0 hangs down.
"""

from typing import Literal

import numpy as np
from jaxtyping import Float, UInt8

from .dataset import Dataset, SplitName
from .drawing import resized_bar
from .resize import quantise
from .streams import stream
from .textures import grey_textures

TIME = 100
DT = 0.01
STEP = 1e-4
GRAVITY = 3 * 9.81  # m g l / inertia
FRICTION = 0.1
KICK = 0.1  # standard deviation of the change of velocity after each frame
PIXEL_NOISE = 0.05
VECTOR_NOISE = 0.1
SIZE = 24


def advance(
    angle: Float[np.ndarray, "*shape"], velocity: Float[np.ndarray, "*shape"]
) -> tuple[Float[np.ndarray, "*shape"], Float[np.ndarray, "*shape"]]:
    """The angle and velocity one frame later, without the kick; angle 0 hangs down."""
    for _ in range(round(DT / STEP)):
        # upright is the angle π, so θ̈ = 29.43 sin(θ - π) - 0.1 θ̇ = -29.43 sin θ - 0.1 θ̇
        velocity = velocity + STEP * (-GRAVITY * np.sin(angle) - FRICTION * velocity)
        angle = angle + STEP * velocity
    return angle, velocity


def simulate(seed: int, split: str, n: int) -> tuple[Float[np.ndarray, "n t"], Float[np.ndarray, "n t"]]:
    """Angles in (-π, π] and angular velocities, the same for all views and backgrounds of one seed."""
    angle = np.empty((n, TIME))
    velocity = np.zeros((n, TIME))
    angle[:, 0] = stream(seed, "pendulum", split, "angle").uniform(-np.pi, np.pi, n)
    kicks = KICK * stream(seed, "pendulum", split, "kicks").standard_normal((n, TIME))
    for t in range(1, TIME):
        angle[:, t], velocity[:, t] = advance(angle[:, t - 1], velocity[:, t - 1])
        velocity[:, t] += kicks[:, t]
    return np.pi - (np.pi - angle) % (2 * np.pi), velocity


def draw(angle: Float[np.ndarray, "n t"]) -> UInt8[np.ndarray, "n t 24 24"]:
    return quantise(resized_bar(angle.reshape(-1), size=SIZE)).reshape(*angle.shape, SIZE, SIZE)


def pendulum(
    n: int = 500,
    *,
    view: Literal["image", "direction"] = "image",
    background: Literal["none", "textures"] = "none",
    split: SplitName = "train",
    seed: int = 0,
    variant: int = 0,
) -> Dataset:
    """Make n films of a pendulum, 100 frames of 0.01 s each.

    Args:
        n: the number of films. Fewer are the first ones of more.
        view: "image" gives (n, 100, 24, 24, 1), "direction" noisy sin θ and cos θ, (n, 100, 2).
        background: "none" adds pixel noise to images; "textures" puts a new random texture behind each frame, and
            gives 8-bit images.
        split: another split has other films.
        seed: the seed of all random numbers.
        variant: the variant of the noise and the textures; another one shows the same motion.
    """
    if n < 1:
        raise ValueError(f"n must be at least 1, but is {n}")
    if background != "none" and view != "image":
        raise ValueError(f"background={background!r} is for images: leave it out, or ask for view='image'")
    angle, velocity = simulate(seed, split, n)
    rng = stream(seed, _STREAMS[view, background], split, "noise", variant)
    if view == "direction":
        x = np.stack([np.sin(angle), np.cos(angle)], -1)
        x = (x + VECTOR_NOISE * rng.standard_normal(x.shape)).astype(np.float32)
    elif background == "textures":
        x = np.maximum(draw(angle), grey_textures(angle.shape, SIZE, rng))[..., None]
    else:
        x = draw(angle)[..., None] / np.float32(255)
        x += np.float32(PIXEL_NOISE) * rng.standard_normal(x.shape, np.float32)
    return Dataset(x, *ground_truth(angle, velocity), dt=DT)


_STREAMS = {
    ("image", "none"): "pendulum",
    ("image", "textures"): "cifar10-pendulum",
    ("direction", "none"): "pendulum-vector",
}
"""Names that seed the noise. They must stay: other names give other films."""


def ground_truth(angle, velocity) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    def column(x: np.ndarray) -> np.ndarray:
        return x[..., None].astype(np.float32)

    states = {"angle": column(angle), "velocity": column(velocity), "cos_angle": column(np.cos(angle))}
    return states, {"sin_angle": column(np.sin(angle)), "velocity": column(velocity)}
