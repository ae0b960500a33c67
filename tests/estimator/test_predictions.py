"""Forecasts follow the prior from the filtered state."""

import numpy as np
import pytest

from rpgssm.data import Recording, as_sequences


def propagate(A, Q, b, mean, cov, steps):
    """The textbook loop; b is (steps, k)."""
    means, covs = [], []
    for i in range(steps):
        mean, cov = A @ mean + b[i], A @ cov @ A.T + Q
        means.append(mean)
        covs.append(cov)
    return np.array(means), np.array(covs)


def test_stationary_is_the_prior_from_the_last_filtered_frame(stationary, world):
    ahead, now = stationary.forecast(world.x, 5), stationary.filter(world.x)
    A = stationary.transition_
    for n in (0, 9):
        mean, cov = propagate(A, np.eye(2) - A @ A.T, np.zeros((5, 2)), now.mean[n, -1], now.cov[n, -1], 5)
        np.testing.assert_allclose(ahead.mean[n], mean, atol=1e-5)
        np.testing.assert_allclose(ahead.cov[n], cov, atol=1e-5)
    assert ahead.samples is None


def test_free(free, world):
    ahead, now, prior = free.forecast(world.x, 5), free.filter(world.x), free.model_.prior
    b = np.tile(np.asarray(prior.b), (5, 1))
    mean, cov = propagate(free.transition_, np.asarray(prior.Q), b, now.mean[4, -1], now.cov[4, -1], 5)
    np.testing.assert_allclose(ahead.mean[4], mean, atol=1e-5)
    np.testing.assert_allclose(ahead.cov[4], cov, atol=1e-5)


def future_of(pushed, steps):
    extra = np.random.default_rng(1).normal(size=(10, steps, 2)).astype(np.float32)
    return np.concatenate([pushed.u, extra], 1)


def test_controls_of_the_future_act(controlled, pushed):
    u = future_of(pushed, 5)
    now = controlled.filter(pushed.x, controls=pushed.u)
    ahead = controlled.forecast(pushed.x, 5, controls=u)
    A, B = controlled.transition_, np.asarray(controlled.model_.prior.B)
    mean, _ = propagate(A, np.eye(2) - A @ A.T, u[3, 11:16] @ B.T, now.mean[3, -1], now.cov[3, -1], 5)
    np.testing.assert_allclose(ahead.mean[3], mean, atol=1e-5)
    without_the_last = controlled.forecast(pushed.x, 5, controls=u[:, :16])
    np.testing.assert_array_equal(without_the_last.mean, ahead.mean)
    longer = np.concatenate([u, u], 1)
    np.testing.assert_array_equal(controlled.forecast(pushed.x, 5, controls=longer).mean, ahead.mean)
    recording = Recording(pushed.x, controls=u)
    np.testing.assert_array_equal(controlled.forecast(recording, 5).mean, ahead.mean)
    sequences = as_sequences(pushed.x, controls=pushed.u)[0]
    np.testing.assert_array_equal(controlled.forecast(sequences, 5, controls=u).mean, ahead.mean)


def test_ragged_contexts_with_controls(controlled, pushed):
    u, lengths = future_of(pushed, 5), (12, 7)
    x = [pushed.x[n, :t] for n, t in enumerate(lengths)]
    ahead = controlled.forecast(x, 5, controls=[u[n, : t + 5] for n, t in enumerate(lengths)])
    assert [m.shape for m in ahead.mean] == [(5, 2), (5, 2)]
    alone = controlled.forecast(pushed.x[1, :7], 5, controls=u[1, :12])
    assert alone.mean.shape == (5, 2)
    np.testing.assert_allclose(ahead.mean[1], alone.mean, atol=1e-5)
    np.testing.assert_allclose(ahead.cov[1], alone.cov, atol=1e-5)


def test_ragged_contexts_and_one_long_sequence(stationary, world):
    ahead = stationary.forecast([world.x[0], world.x[1, :5]], 4, samples=3)
    alone = stationary.forecast(world.x[1, :5], 4, samples=3)
    assert alone.mean.shape == (4, 2)
    assert alone.cov.shape == (4, 2, 2)
    assert alone.samples.shape == (3, 4, 2)
    np.testing.assert_allclose(ahead.mean[1], alone.mean, atol=1e-5)
    assert [s.shape for s in ahead.samples] == [(3, 4, 2), (3, 4, 2)]


def test_samples_have_the_moments_of_the_forecast(stationary, world):
    ahead = stationary.forecast(world.x[:2], 4, samples=4000, random_state=1)
    assert ahead.samples.shape == (4000, 2, 4, 2)
    np.testing.assert_allclose(ahead.samples.mean(0), ahead.mean, atol=0.08)
    for t in (0, 3):
        np.testing.assert_allclose(np.cov(ahead.samples[:, 1, t].T), ahead.cov[1, t], atol=0.08)
    again = stationary.forecast(world.x[:2], 4, samples=4000, random_state=1)
    other = stationary.forecast(world.x[:2], 4, samples=4000, random_state=2)
    np.testing.assert_array_equal(ahead.samples, again.samples)
    assert not np.array_equal(ahead.samples, other.samples)


def test_errors_say_what_to_do(stationary, controlled, discrete, world, pushed):
    with pytest.raises(ValueError, match="steps is 0: it must be a whole number of at least 1"):
        stationary.forecast(world.x, 0)
    with pytest.raises(ValueError, match="without controls: leave controls= out"):
        stationary.forecast(world.x, 2, controls=np.zeros((10, 14, 2)))
    with pytest.raises(ValueError, match="for the frames of X and for the steps to come"):
        controlled.forecast(pushed.x, 2)
    with pytest.raises(ValueError, match="sequence 0 have 12 frames: a forecast needs one for each of the 12"):
        controlled.forecast(pushed.x, 2, controls=pushed.u)
    with pytest.raises(ValueError, match="but X has 10 sequences"):
        controlled.forecast(pushed.x, 2, controls=np.zeros((3, 14, 2)))
    with pytest.raises(ValueError, match="vectors of length 3, but the model was fitted with vectors of length 2"):
        controlled.forecast(pushed.x, 2, controls=np.zeros((10, 14, 3)))
    with pytest.raises(ValueError, match="hold 3 in sequence 0, frame 1"):
        discrete[0].forecast(pushed.x[:1], 2, controls=np.array([[0] * 12 + [3, 0]]))
