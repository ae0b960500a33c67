"""The pendulum tasks: images of a swinging bar with pixel noise, with CIFAR-10 behind it, or only sin θ and cos θ.

Physics: mass 1, length 1, g = 9.81, inertia 1/3, friction 0.1, no torque; semi-implicit Euler with step 1e-4; after
each frame (0.01 s) the velocity gets a kick. Angles start uniform on the circle, at rest; angle 0 hangs down.
"""

import numpy as np
from jaxtyping import Float, UInt8

from .backgrounds import still_backgrounds
from .drawing import resized_bar
from .recipe import Made, Request
from .resize import quantise
from .streams import stream
from .task import Split

VERSION = 1
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
    """One frame of motion without the kick; angle 0 hangs down."""
    for _ in range(round(DT / STEP)):
        # upright is the angle π, so θ̈ = 29.43 sin(θ - π) - 0.1 θ̇ = -29.43 sin θ - 0.1 θ̇
        velocity = velocity + STEP * (-GRAVITY * np.sin(angle) - FRICTION * velocity)
        angle = angle + STEP * velocity
    return angle, velocity


def simulate(seed: int, split: str, n: int) -> tuple[Float[np.ndarray, "n t"], Float[np.ndarray, "n t"]]:
    """Angles in (-π, π] and angular velocities. All pendulum tasks of one seed show the same motion."""
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


def build(request: Request) -> Made:
    splits, sources = {}, {"generator": "rpgssm.tasks.pendulum"}
    for split, n in request.sizes.items():
        angle, velocity = simulate(request.seed, split, n)
        rng = stream(request.seed, request.name.removesuffix("-64"), split, "noise", request.variant)
        match request.name:
            case "pendulum-vector":
                x = np.stack([np.sin(angle), np.cos(angle)], -1)
                x = (x + VECTOR_NOISE * rng.standard_normal(x.shape)).astype(np.float32)
            case "cifar10-pendulum":
                behind, used = still_backgrounds(request, split, (n, TIME), SIZE, rng)
                x = np.maximum(draw(angle), behind)[..., None]
                sources |= used
            case _:
                x = draw(angle)[..., None] / np.float32(255)
                x += np.float32(PIXEL_NOISE) * rng.standard_normal(x.shape, np.float32)
        splits[split] = Split(x, *_ground_truth(angle, velocity))
    scale = 1 / 255 if request.name == "cifar10-pendulum" else 1.0
    return Made(splits, dt=DT, scale=scale, sources=sources)


def _ground_truth(angle, velocity) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
    def column(x: np.ndarray) -> np.ndarray:
        return x[..., None].astype(np.float32)

    states = {"angle": column(angle), "velocity": column(velocity), "cos_angle": column(np.cos(angle))}
    return states, {"sin_angle": column(np.sin(angle)), "velocity": column(velocity)}
