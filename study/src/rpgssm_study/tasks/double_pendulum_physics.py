"""A simulated double pendulum, for those without the recordings.

Two point masses on rods of the recorded pendulum's lengths (91 and 70 mm), with a little friction, integrated by
fourth-order Runge-Kutta. It stands in for the recordings so that everything runs; it is not a model of them.
"""

import numpy as np
from jaxtyping import Float

from rpgssm.datasets.streams import stream

L1, L2 = 0.091, 0.070
MASS = 0.7
"""Of the outer mass, relative to the inner one."""
GRAVITY = 9.81
FRICTION = 0.15
UNITS = 602 / L1
"""Marker units per metre."""


def simulate(
    seed: int, split: str, n: int, time: int, dt: float
) -> tuple[Float[np.ndarray, "n t 3 2"], Float[np.ndarray, " n"]]:
    """Markers (y, x) of pivot, joint and tip as the recordings give them, and the stretched length."""
    rng = stream(seed, "double-pendulum", split, "simulated")
    start = rng.uniform(-1, 1, (n, 4)) * np.array([np.pi, np.pi, 8.0, 8.0])
    state, path = start.T, np.empty((n, time, 2))
    substeps = 6
    h = dt / substeps
    for t in range(time):
        path[:, t] = state[:2].T
        for _ in range(substeps):
            k1 = _derivative(state)
            k2 = _derivative(state + h / 2 * k1)
            k3 = _derivative(state + h / 2 * k2)
            k4 = _derivative(state + h * k3)
            state = state + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
    joint = L1 * np.stack([np.cos(path[..., 0]), np.sin(path[..., 0])], -1)
    tip = joint + L2 * np.stack([np.cos(path[..., 1]), np.sin(path[..., 1])], -1)
    markers = UNITS * np.stack([np.zeros_like(joint), joint, tip], 2)
    return markers, np.full(n, UNITS * (L1 + L2))


def _derivative(state: Float[np.ndarray, "4 n"]) -> Float[np.ndarray, "4 n"]:
    """Of (θ1, θ2, ω1, ω2), angles from the downward vertical: the Euler-Lagrange equations, solved for accelerations.

    (1 + m) l1 α1 + m l2 α2 cos δ = -m l2 ω2² sin δ - (1 + m) g sin θ1,   l2 α2 + l1 α1 cos δ = l1 ω1² sin δ - g sin θ2,
    with δ = θ1 - θ2.
    """
    a, b, u, v = state
    c, s = np.cos(a - b), np.sin(a - b)
    first = -MASS * L2 * v**2 * s - (1 + MASS) * GRAVITY * np.sin(a)
    second = L1 * u**2 * s - GRAVITY * np.sin(b)
    alpha = (first - MASS * c * second) / (L1 * (1 + MASS - MASS * c**2))
    beta = (second - L1 * alpha * c) / L2
    return np.stack([u, v, alpha - FRICTION * u, beta - FRICTION * v])
