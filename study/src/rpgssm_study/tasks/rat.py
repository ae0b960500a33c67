"""A rat in a box: the random motion of the package `ratinabox` (its `Agent` in a 1 m box), for many rats at once.

Reproduced: the Ornstein-Uhlenbeck processes of rotational velocity and of speed (normal variable of a Rayleigh law,
with the same clipping), the two wall forces (a spring that turns the velocity, a conveyor belt that moves the
position), bouncing off walls at half the mean speed from the position before the step, the measured velocity, the
smoothed head direction, and the start (uniform in the box, mean speed, random direction).

Left out: the package's jitter of 1e-9 to 1e-6 m in its geometry, and with it its order of random draws. So the
processes agree in law, and given the same noise they agree to that jitter; the tests check both against the package.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float
from scipy.special import ndtr, ndtri

DT = 0.05
SPEED_MEAN = 0.08
SPEED_TIME = 0.7
TURN_STD = np.deg2rad(120)
TURN_TIME = 0.08
THIGMOTAXIS = 0.5
WALL_DISTANCE = 0.1
WALL_STRENGTH = 1.0
HEAD_TIME = 0.15
BOX = 1.0


@dataclass(frozen=True)
class Paths:
    """Positions (m), velocities of the steps taken (m/s) and head directions (unit vectors), y upwards."""

    position: Float[np.ndarray, "n t 2"]
    velocity: Float[np.ndarray, "n t 2"]
    head_direction: Float[np.ndarray, "n t 2"]


def walk(
    start: Float[np.ndarray, "n 2"], direction: Float[np.ndarray, " n"], noise: Float[np.ndarray, "n t 2"]
) -> Paths:
    """Move rats from `start`, heading in `direction` (radians); `noise[..., 0]` drives turning, `[..., 1]` speed.

    The first frame is the one after the first step, as in the package's history.
    """
    n, time = noise.shape[:2]
    position = start.copy()
    velocity = SPEED_MEAN * np.stack([np.cos(direction), np.sin(direction)], -1)
    head = _unit(velocity)
    turning = np.zeros(n)
    paths = Paths(*(np.empty((n, time, 2)) for _ in range(3)))
    for t in range(time):
        before = position
        velocity, turning = _turn_and_speed(velocity, turning, noise[:, t])
        push, shift = _walls(position)
        velocity = velocity + push
        position = position + shift + velocity * DT
        position, velocity = _bounce(before, position, velocity)
        measured = (position - before) / DT
        head = _unit((1 - DT / HEAD_TIME) * head + DT / HEAD_TIME * _unit(measured))
        paths.position[:, t], paths.velocity[:, t], paths.head_direction[:, t] = position, measured, head
    return paths


def _unit(x: np.ndarray) -> np.ndarray:
    return x / np.maximum(np.linalg.norm(x, axis=-1, keepdims=True), 1e-12)


def _ornstein_uhlenbeck(x: np.ndarray, scale: float, time: float, noise: np.ndarray) -> np.ndarray:
    return x - x * DT / time + np.sqrt(2 * scale**2 * DT / time) * noise


def _turn_and_speed(velocity, turning, noise):
    turning = _ornstein_uhlenbeck(turning, float(TURN_STD), TURN_TIME, noise[:, 0])
    c, s = np.cos(turning * DT), np.sin(turning * DT)
    x, y = velocity[:, 0], velocity[:, 1]
    velocity = np.stack([c * x - s * y, s * x + c * y], -1)
    speed = np.linalg.norm(velocity, axis=-1)
    level = np.clip(1 - np.exp(-(speed**2) / (2 * SPEED_MEAN**2)), 1e-6, 1 - 1e-6)
    normal = _ornstein_uhlenbeck(ndtri(level), 1.0, SPEED_TIME, noise[:, 1])
    faster = SPEED_MEAN * np.sqrt(-2 * np.log1p(-ndtr(normal)))
    return velocity * (faster / np.maximum(speed, 1e-12))[:, None], turning


def _walls(position):
    """Change of velocity by the springs, and shift of position by the conveyor belts, of all four walls."""
    d, v = WALL_DISTANCE, WALL_STRENGTH * SPEED_MEAN
    push, shift = np.zeros_like(position), np.zeros_like(position)
    for distance, inwards in ((position, 1.0), (BOX - position, -1.0)):
        depth = np.clip(d - distance, 0, d)
        push += inwards * (v / d) ** 2 * depth
        shift += inwards * v * (1 - np.sqrt(1 - (depth / d) ** 2))
    return 3 * (1 - THIGMOTAXIS) ** 2 * push * DT, 6 * THIGMOTAXIS**2 * shift * DT


def _bounce(before, position, velocity):
    """Reflect rats that stepped through a wall, one wall at a time, until none does."""
    for _ in range(8):
        outside = (position <= 0) | (position >= BOX)
        hit = outside.any(-1)
        if not hit.any():
            return position, velocity
        # with two walls in the way, the one reached after the smaller part of the step
        step = np.where(outside, position - before, 1.0)
        part = np.where(outside, (np.where(position <= 0, 0.0, BOX) - before) / step, np.inf)
        axis = part.argmin(-1)
        flip = np.ones_like(velocity)
        np.put_along_axis(flip, axis[:, None], -1.0, axis=1)
        bounced = velocity * flip
        bounced *= 0.5 * SPEED_MEAN / np.linalg.norm(bounced, axis=-1, keepdims=True)
        velocity = np.where(hit[:, None], bounced, velocity)
        position = np.where(hit[:, None], before + bounced * DT, position)
    return np.clip(position, 0.01, BOX - 0.01), velocity
