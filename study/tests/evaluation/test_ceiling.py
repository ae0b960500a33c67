import numpy as np
import pytest

from rpgssm.datasets.drawing import resized_bar
from rpgssm.datasets.pendulums import advance
from rpgssm.evaluation import Latents, LinearReadout, calibrate
from rpgssm_study.evaluation import (
    angle_noise,
    ceiling,
    exact_smoother,
    linear_ceiling,
    pendulum_ceiling,
    smooth_pendulum,
)
from rpgssm_study.tasks import load_task


def dense_posterior(p: dict[str, np.ndarray], x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The joint Gaussian of all latents and observations of a short sequence, conditioned by the textbook formula."""
    T, K = len(x), p["C"].shape[1]
    prior = np.zeros((T * K, T * K))
    for s in range(T):
        for t in range(s, T):
            block = np.linalg.matrix_power(p["B"], t - s)
            prior[t * K : (t + 1) * K, s * K : (s + 1) * K] = block
            prior[s * K : (s + 1) * K, t * K : (t + 1) * K] = block.T
    C, R = np.kron(np.eye(T), p["C"]), np.kron(np.eye(T), p["R"])
    gain = np.linalg.solve(C @ prior @ C.T + R, C @ prior).T
    mean = gain @ (x - p["d"]).reshape(-1)
    cov = prior - gain @ C @ prior
    blocks = [cov[t * K : (t + 1) * K, t * K : (t + 1) * K] for t in range(T)]
    return mean.reshape(T, K), np.stack(blocks)


def test_the_exact_smoother_is_exact():
    task = load_task("linear-small", n_train=2, n_validation=1, n_test=2, cache=False)
    latents = exact_smoother(task, task.test)
    mean, cov = dense_posterior(dict(task.parameters), task.test.observations[1].astype(float))
    np.testing.assert_allclose(latents.mean[1], mean, atol=1e-8)
    assert latents.cov is not None
    np.testing.assert_allclose(latents.cov[1], cov, atol=1e-8)


def test_no_linear_readout_of_the_observations_beats_it():
    task = load_task("linear-medium", cache=False)
    best = linear_ceiling(task)["z"]
    posterior = exact_smoother(task, task.test)
    assert posterior.cov is not None
    expected = 1 - np.diagonal(posterior.cov[0], axis1=-2, axis2=-1).mean()  # the latents have variance 1
    assert best == pytest.approx(expected, abs=0.01)

    x = LinearReadout.fit(task.train.observations, task.train.targets).score(task.test.observations, task.test.targets)
    assert x["z"] < best


def test_only_linear_tasks_have_an_exact_smoother():
    task = load_task("pendulum-vector", n_train=1, n_validation=1, n_test=2, cache=False)
    with pytest.raises(ValueError, match="not a linear task"):
        exact_smoother(task, task.test)


def particle_smoother(seen: np.ndarray, noise: float, particles: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Filtering particles whose whole past is kept: crude, and free of any Gaussian assumption."""
    rng = np.random.default_rng(seed)
    angle = np.arctan2(*seen[0]) + noise * rng.standard_normal(particles)
    paths = np.stack([angle, np.zeros(particles)], -1)[None]
    for y in seen[1:]:
        a, v = advance(paths[-1, :, 0], paths[-1, :, 1])
        v = v + 0.1 * rng.standard_normal(particles)
        logw = -((y[0] - np.sin(a)) ** 2 + (y[1] - np.cos(a)) ** 2) / (2 * noise**2)
        w = np.exp(logw - logw.max())
        chosen = rng.choice(particles, particles, p=w / w.sum())
        paths = np.concatenate([paths, np.stack([a, v], -1)[None]])[:, chosen]
    return paths.mean(1), paths.var(1)


@pytest.mark.slow
def test_unscented_smoother_agrees_with_particles():
    task = load_task("pendulum-vector", seed=2, n_train=1, n_validation=1, n_test=3, cache=False)
    seen = task.test.observations[:, :12].astype(float)
    latents = smooth_pendulum(seen, 0.1)
    assert latents.cov is not None
    for i in range(3):
        mean, variance = particle_smoother(seen[i], 0.1, 20_000, seed=i)
        spread = np.sqrt(variance) + 1e-3
        assert (np.abs(latents.mean[i] - mean) / spread)[4:].max() < 0.35
        ours = np.sqrt(np.diagonal(latents.cov[i], axis1=-2, axis2=-1))
        np.testing.assert_allclose(ours[6:], np.sqrt(variance)[6:], rtol=0.25)


@pytest.mark.slow
def test_extended_and_unscented_smoothers_agree():
    """At this noise the physics are nearly straight within the spread of the state."""
    task = load_task("pendulum-vector", n_train=1, n_validation=1, n_test=4, cache=False)
    a, b = (smooth_pendulum(task.test.observations.astype(float), 0.1, kind=kind) for kind in ("extended", "unscented"))
    assert a.cov is not None
    spread = np.sqrt(np.diagonal(a.cov, axis1=-2, axis2=-1)) + 1e-4
    assert (np.abs(a.mean - b.mean) / spread).max() < 0.3
    assert np.abs(a.mean - b.mean).max() > 0


def test_unscented_smoother_is_calibrated_and_nearly_right():
    task = load_task("pendulum-vector", n_train=1, n_validation=1, cache=False)
    latents = smooth_pendulum(task.test.observations.astype(float), 0.1)
    assert latents.cov is not None
    error = latents.mean[..., 1] - task.test.targets["velocity"][..., 0]
    standardised = error[:, 5:] / np.sqrt(latents.cov[:, 5:, 1, 1])
    assert standardised.std() == pytest.approx(1, abs=0.12)
    scores = pendulum_ceiling(task)
    assert scores["sin_angle"] > 0.998
    assert scores["velocity"] > 0.995
    worse = pendulum_ceiling(task, noise=0.5)
    assert worse["velocity"] < scores["velocity"]


def test_angle_noise_is_what_a_least_squares_fit_attains():
    """Fit the angle to noisy frames by trying many: the error is the bound's, or a little more."""
    rng = np.random.default_rng(0)
    errors = []
    for truth in rng.uniform(-np.pi, np.pi, 60):
        frame = resized_bar(np.array([truth]))[0] + 0.05 * rng.standard_normal((24, 24))
        trial = truth + np.linspace(-0.02, 0.02, 161)
        cost = ((resized_bar(trial) - frame) ** 2).sum((1, 2))
        errors.append(trial[cost.argmin()] - truth)
    attained = np.sqrt(np.mean(np.square(errors)))
    assert 0.8 * angle_noise() < attained < 2 * angle_noise()


def test_a_ceiling_where_there_is_one():
    linear = load_task("linear-small", n_train=20, n_validation=1, n_test=20, cache=False)
    found = ceiling(linear)
    assert found is not None
    assert found["mean"] == found["z"] > 0.8
    tracking = load_task("tracking", n_train=1, n_validation=1, n_test=1, cache=False)
    assert ceiling(tracking) is None


def test_the_exact_posterior_is_calibrated():
    task = load_task("linear-small", cache=False)
    train, test = exact_smoother(task, task.train), exact_smoother(task, task.test)
    readout = LinearReadout.fit(train.mean, task.train.targets)
    c = calibrate(readout, test, task.test.targets)["z"]
    assert c.error_std == pytest.approx(1, abs=0.04)
    assert c.error_mean == pytest.approx(0, abs=0.05)
    assert c.coverage["50%"] == pytest.approx(0.5, abs=0.03)
    assert c.coverage["90%"] == pytest.approx(0.9, abs=0.02)
    assert test.cov is not None
    proud = calibrate(readout, Latents(test.mean, test.cov / 4), task.test.targets)["z"]
    assert proud.error_std == pytest.approx(2, abs=0.08)
    assert proud.coverage["90%"] < 0.65


@pytest.mark.slow
def test_both_kinds_agree_on_the_pendulum():
    """At this noise the physics are nearly straight within the spread of the state."""
    task = load_task("pendulum-vector", n_train=1, n_validation=1, n_test=4, cache=False)
    a, b = (smooth_pendulum(task.test.observations.astype(float), 0.1, kind=kind) for kind in ("extended", "unscented"))
    assert a.cov is not None
    spread = np.sqrt(np.diagonal(a.cov, axis1=-2, axis2=-1)) + 1e-4
    assert (np.abs(a.mean - b.mean) / spread).max() < 0.3
    assert np.abs(a.mean - b.mean).max() > 0
