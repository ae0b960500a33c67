import numpy as np
import pytest

from rpgssm.evaluation import KernelReadout, LinearReadout, mean_score, r_squared
from rpgssm.evaluation.regression import RIDGE, angular_error


def problem(n=40, t=25, k=3, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((n, t, k))
    w, b = rng.standard_normal((2, k)), np.array([3.0, -1.0])
    targets = {"straight": z @ w.T + b, "bent": np.sin(2 * z[..., :1]) * z[..., 1:2]}
    return z, w, b, targets


def test_r_squared_by_hand():
    truth = np.array([[1.0, 0.0], [2.0, 2.0], [3.0, 4.0]])
    prediction = np.array([[1.0, 2.0], [2.0, 2.0], [2.0, 2.0]])
    assert r_squared(truth, prediction) == pytest.approx((0.5 + 0.0) / 2)
    assert r_squared(truth, truth) == 1
    with pytest.raises(ValueError, match="dimension 1 of the target is constant"):
        r_squared(np.array([[1.0, 2.0], [2.0, 2.0]]), np.zeros((2, 2)))


def test_linear_readout_finds_the_map():
    z, w, b, targets = problem()
    readout = LinearReadout.fit(z, targets)
    np.testing.assert_allclose(readout.weights["straight"], w, atol=1e-9)
    np.testing.assert_allclose(readout.intercept["straight"], b, atol=1e-9)
    scores = readout.score(z, targets)
    assert scores["straight"] == pytest.approx(1)
    assert scores["bent"] < 0.2


def test_linear_readout_is_least_squares_and_scored_on_other_data():
    z, _, _, targets = problem()
    rng = np.random.default_rng(1)
    noisy = {"y": targets["straight"] + rng.standard_normal(targets["straight"].shape)}
    readout = LinearReadout.fit(z[:20], {"y": noisy["y"][:20]})
    design = np.concatenate([z[:20].reshape(-1, 3), np.ones((500, 1))], 1)
    solution = np.linalg.lstsq(design, noisy["y"][:20].reshape(-1, 2), rcond=None)[0]
    np.testing.assert_allclose(readout.weights["y"], solution[:3].T, atol=1e-9)
    held_out = z[20:].reshape(-1, 3) @ solution[:3] + solution[3]
    expected = r_squared(noisy["y"][20:].reshape(-1, 2), held_out)
    assert readout.score(z[20:], {"y": noisy["y"][20:]})["y"] == pytest.approx(expected)


def test_variance_of_what_is_decoded():
    z, w, _, targets = problem()
    root = np.random.default_rng(2).standard_normal((40, 25, 3, 3))
    cov = root @ root.swapaxes(-1, -2)
    variance = LinearReadout.fit(z, targets).variance(cov)["straight"]
    np.testing.assert_allclose(variance[7, 3], np.diag(w @ cov[7, 3] @ w.T), rtol=1e-8)


def test_kernel_ridge_reads_what_is_bent():
    z, _, _, targets = problem(n=80)
    readout = KernelReadout(z[:60], {k: v[:60] for k, v in targets.items()}, points=1000)
    scores = readout.score(z[60:], {k: v[60:] for k, v in targets.items()})
    assert scores["straight"] > 0.97
    assert scores["bent"] > 0.7


def test_kernel_ridge_is_the_textbooks():
    """Written out: α = (K + λI)⁻¹ y on standardised data."""
    z, _, _, targets = problem(n=6, t=20)
    readout = KernelReadout(z, {"y": targets["bent"]})
    flat, y = z.reshape(-1, 3), targets["bent"].reshape(-1, 1)
    flat, y_standard = (flat - flat.mean(0)) / flat.std(0), (y - y.mean()) / y.std()
    K = np.exp(-((flat[:, None] - flat[None]) ** 2).sum(-1) / (2 * readout.bandwidth**2))
    expected = K @ np.linalg.solve(K + RIDGE * np.eye(120), y_standard) * y.std() + y.mean()
    np.testing.assert_allclose(readout.predict(z)["y"].reshape(-1, 1), expected, atol=1e-8)
    distances = np.linalg.norm(flat[:, None] - flat[None], axis=-1)[np.triu_indices(120, 1)]
    assert readout.bandwidth == pytest.approx(np.median(distances), rel=0.03)


def test_kernel_ridge_depends_on_the_seed_alone():
    z, _, _, targets = problem()
    one, same, other = (KernelReadout(z, targets, seed=s, points=100).predict(z)["bent"] for s in (0, 0, 1))
    np.testing.assert_array_equal(one, same)
    assert not np.array_equal(one, other)


def test_means_count_each_target_once():
    assert mean_score({"a": 1.0, "b": 0.5, "c": -9.0}, secondary=("c",)) == 0.75


def test_angles_are_compared_around_the_circle():
    truth = np.deg2rad([[179.0], [0.0]])
    vector = np.array([[np.cos(np.deg2rad(-179.0)), np.sin(np.deg2rad(-179.0))], [5.0, 0.0]])
    assert angular_error(truth, vector) == pytest.approx(1.0)


def test_other_frames_are_refused():
    z, _, _, targets = problem()
    with pytest.raises(ValueError, match=r"'straight' has 39 sequences of 25 frames, the latents have 40 of 25"):
        LinearReadout.fit(z, {"straight": targets["straight"][1:]})
