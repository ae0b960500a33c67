import numpy as np
import pytest

from rpgssm.tasks import load_task
from rpgssm.tasks.linear import SIZES, parameters


@pytest.mark.parametrize("name", SIZES)
def test_dynamics_are_a_damped_rotation_by_a_fifth_of_pi(name):
    p = parameters(name, seed=3)
    k, d = SIZES[name]
    angles = np.sort(np.abs(np.angle(np.linalg.eigvals(p["B"]))))
    np.testing.assert_allclose(np.linalg.svd(p["B"])[1], 0.95)
    np.testing.assert_allclose(angles, [0] * (k - 2) + [np.pi / 5] * 2, atol=1e-6)
    np.testing.assert_allclose(p["Q"], (1 - 0.95**2) * np.eye(k), atol=1e-12)
    assert p["C"].shape == (d, k)


def test_sizes_of_the_splits():
    task = load_task("linear-medium", cache=False)
    assert [len(s) for s in task.splits.values()] == [200, 50, 50]
    assert task.frame_shape == (10,)
    assert task.train.observations.dtype == np.float32


def test_data_follow_the_parameters():
    task = load_task("linear-small", seed=1, n_train=1500, cache=False)
    p, z = task.parameters, task.train.targets["z"].astype(np.float64)
    x = task.train.observations
    flat = z.reshape(-1, 3)
    np.testing.assert_allclose(np.cov(z[:, -1].T), np.eye(3), atol=0.12)
    steps = z[:, 1:] - z[:, :-1] @ p["B"].T
    np.testing.assert_allclose(np.cov(steps.reshape(-1, 3).T), p["Q"], atol=2e-3)
    np.testing.assert_allclose((steps.reshape(-1, 3).T @ z[:, :-1].reshape(-1, 3)) / len(flat), 0, atol=5e-3)
    noise = (x - z @ p["C"].T - p["d"]).reshape(-1, 5)
    np.testing.assert_allclose(noise.mean(0), 0, atol=6e-3)
    np.testing.assert_allclose(np.cov(noise.T), p["R"], atol=6e-3)
