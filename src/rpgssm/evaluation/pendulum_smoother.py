"""An unscented Kalman smoother for the pendulum, for all sequences at once.

State: angle and angular velocity. It moves by the task's own physics with its kicks, and is seen as (sin θ, cos θ) with
independent normal noise. Sigma points carry the state's distribution through both; a Rauch-Tung-Striebel pass goes
back. The angle is kept unwrapped, which is harmless: only its sine and cosine are ever seen.
"""

import numpy as np
from jaxtyping import Float

from rpgssm.tasks.pendulum import KICK, advance

from .latents import Latents

_SPREAD = np.sqrt(3.0)  # sigma points at ±√3 standard deviations match a normal's first moments up to the fifth
_WEIGHTS = np.array([1 / 3, 1 / 6, 1 / 6, 1 / 6, 1 / 6])


def smooth_pendulum(seen: Float[np.ndarray, "n t 2"], noise: float) -> Latents:
    """Means and covariances of (θ, ω). The pendulum starts at rest, at an angle of which nothing is known before."""
    n, time = seen.shape[:2]
    process, sensor = np.diag([0.0, KICK**2]), noise**2 * np.eye(2)
    means, covs = np.empty((n, time, 2)), np.empty((n, time, 2, 2))
    ahead_means, ahead_covs, cross = np.empty_like(means), np.empty_like(covs), np.empty_like(covs)
    m = np.stack([np.arctan2(seen[:, 0, 0], seen[:, 0, 1]), np.zeros(n)], -1)
    P = np.tile(np.diag([min(noise, 1.0) ** 2, 1e-8]), (n, 1, 1))
    means[:, 0], covs[:, 0] = m, P
    for t in range(1, time):
        points = _sigma_points(m, P)
        moved = np.stack(advance(points[..., 0], points[..., 1]), -1)
        ahead, spread = _moments(moved)
        cross[:, t] = _covariance(points - m[:, None], moved - ahead[:, None])
        ahead_means[:, t], ahead_covs[:, t] = ahead, spread + process
        points = _sigma_points(ahead, ahead_covs[:, t])
        expected = np.stack([np.sin(points[..., 0]), np.cos(points[..., 0])], -1)
        y, S = _moments(expected)
        S = S + sensor
        gain = np.linalg.solve(S, _covariance(expected - y[:, None], points - ahead[:, None])).swapaxes(-1, -2)
        m = ahead + np.einsum("nij,nj->ni", gain, seen[:, t] - y)
        P = _symmetric(ahead_covs[:, t] - gain @ S @ gain.swapaxes(-1, -2))
        means[:, t], covs[:, t] = m, P
    for t in range(time - 2, -1, -1):
        back = np.linalg.solve(ahead_covs[:, t + 1], cross[:, t + 1].swapaxes(-1, -2)).swapaxes(-1, -2)
        means[:, t] += np.einsum("nij,nj->ni", back, means[:, t + 1] - ahead_means[:, t + 1])
        change = covs[:, t + 1] - ahead_covs[:, t + 1]
        covs[:, t] = _symmetric(covs[:, t] + back @ change @ back.swapaxes(-1, -2))
    return Latents(means, covs)


def _sigma_points(m: Float[np.ndarray, "n 2"], P: Float[np.ndarray, "n 2 2"]) -> Float[np.ndarray, "n 5 2"]:
    L = _SPREAD * np.linalg.cholesky(P + 1e-14 * np.eye(2))
    offsets = np.stack([np.zeros_like(m), L[..., 0], -L[..., 0], L[..., 1], -L[..., 1]], 1)
    return m[:, None] + offsets


def _moments(points: Float[np.ndarray, "n 5 2"]) -> tuple[Float[np.ndarray, "n 2"], Float[np.ndarray, "n 2 2"]]:
    mean = np.einsum("s,nsi->ni", _WEIGHTS, points)
    return mean, _covariance(points - mean[:, None], points - mean[:, None])


def _covariance(a: Float[np.ndarray, "n 5 2"], b: Float[np.ndarray, "n 5 2"]) -> Float[np.ndarray, "n 2 2"]:
    return np.einsum("s,nsi,nsj->nij", _WEIGHTS, a, b)


def _symmetric(P: Float[np.ndarray, "n 2 2"]) -> Float[np.ndarray, "n 2 2"]:
    return 0.5 * (P + P.swapaxes(-1, -2))
