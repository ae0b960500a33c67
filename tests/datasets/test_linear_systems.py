import numpy as np
import pytest

from rpgssm.datasets import linear
from rpgssm.datasets.linear_systems import SIZES, parameters


@pytest.mark.parametrize("size", SIZES)
def test_dynamics_are_a_damped_rotation_by_a_fifth_of_pi(size):
    p = parameters(size, seed=3)
    k, d = SIZES[size]
    angles = np.sort(np.abs(np.angle(np.linalg.eigvals(p["B"]))))
    np.testing.assert_allclose(np.linalg.svd(p["B"])[1], 0.95)
    np.testing.assert_allclose(angles, [0] * (k - 2) + [np.pi / 5] * 2, atol=1e-6)
    np.testing.assert_allclose(p["Q"], (1 - 0.95**2) * np.eye(k), atol=1e-12)
    assert p["C"].shape == (d, k)


def test_splits_are_of_one_system():
    train, test = linear(3, size="medium"), linear(3, size="medium", split="test")
    assert train.observations.shape == (3, 100, 10)
    assert train.observations.dtype == np.float32
    assert not np.array_equal(train.observations, test.observations)
    np.testing.assert_array_equal(train.parameters["B"], test.parameters["B"])
    np.testing.assert_array_equal(train.observations[:2], linear(2, size="medium").observations)
    assert not np.array_equal(train.parameters["B"], linear(3, size="medium", seed=1).parameters["B"])


def test_wrong_arguments_are_refused():
    with pytest.raises(ValueError, match="n must be at least 1"):
        linear(0)


def test_data_follow_the_parameters():
    data = linear(1500, size="small", seed=1)
    p, z = data.parameters, data.targets["z"].astype(np.float64)
    x = data.observations
    flat = z.reshape(-1, 3)
    np.testing.assert_allclose(np.cov(z[:, -1].T), np.eye(3), atol=0.12)
    steps = z[:, 1:] - z[:, :-1] @ p["B"].T
    np.testing.assert_allclose(np.cov(steps.reshape(-1, 3).T), p["Q"], atol=2e-3)
    np.testing.assert_allclose((steps.reshape(-1, 3).T @ z[:, :-1].reshape(-1, 3)) / len(flat), 0, atol=5e-3)
    noise = (x - z @ p["C"].T - p["d"]).reshape(-1, 5)
    np.testing.assert_allclose(noise.mean(0), 0, atol=6e-3)
    np.testing.assert_allclose(np.cov(noise.T), p["R"], atol=6e-3)
