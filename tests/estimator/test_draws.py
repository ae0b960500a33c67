"""Samples of prior and posterior, and the score."""

import equinox as eqx
import numpy as np
import pytest

from rpgssm.core import free_energy
from rpgssm.data import as_sequences

from .conftest import quick


def test_the_prior_is_what_samples_say(stationary):
    z = stationary.sample(3000, 3)
    assert z.shape == (3000, 3, 2)
    np.testing.assert_allclose(np.cov(z[:, 2].T), np.eye(2), atol=0.1)
    np.testing.assert_allclose(z[:, 1].T @ z[:, 0] / 3000, stationary.transition_, atol=0.1)
    np.testing.assert_array_equal(z, stationary.sample(3000, 3))
    assert not np.array_equal(z, stationary.sample(3000, 3, random_state=5))


def test_samples_of_the_prior_follow_controls(controlled):
    u = np.zeros((6, 2), np.float32)
    u[2] = 100
    B, A = np.asarray(controlled.model_.prior.B), controlled.transition_
    difference = controlled.sample(4, 6, controls=u) - controlled.sample(4, 6, controls=0 * u)
    np.testing.assert_allclose(difference[:, :3], 0, atol=1e-5)
    np.testing.assert_allclose(difference[:, 4], np.tile(A @ B @ u[2], (4, 1)), rtol=1e-3, atol=1e-4)
    with pytest.raises(ValueError, match="pass controls= for each frame"):
        controlled.sample(2, 6)
    with pytest.raises(ValueError, match="2 trajectories, but n_samples is 3"):
        controlled.sample(3, 6, controls=np.zeros((2, 6, 2)))


def test_the_posterior_is_what_samples_say(stationary, world, monkeypatch):
    monkeypatch.setattr("rpgssm.estimator._estimator.FRAMES", 12 * 4 * 2000)  # so that there are several batches
    z, smoothed = stationary.sample_posterior(world.x, 2000), stationary.smooth(world.x)
    assert z.shape == (2000, 10, 12, 2)
    np.testing.assert_allclose(z.mean(0), smoothed.mean, atol=0.1)
    np.testing.assert_allclose(np.cov(z[:, 4, 6].T), smoothed.cov[4, 6], atol=0.06)
    noise = (z - z.mean(0)).reshape(2000, 10, -1)
    between = [np.mean(noise[:, 0] * noise[:, n]) / np.mean(noise**2) for n in range(1, 10)]
    assert np.abs(between).max() < 0.1  # each batch has noise of its own
    ragged = stationary.sample_posterior([world.x[0], world.x[1, :5]], 3, random_state=1)
    assert [s.shape for s in ragged] == [(3, 12, 2), (3, 5, 2)]


@eqx.filter_jit
def energies(model, data):
    return free_energy(model.chain(12), model.potentials(data), marginal="gaussian")[1].free_energy


def test_the_last_batch_of_a_score_counts_only_what_is_new(stationary, world):
    """With 10 sequences in batches of 8, the second batch is made of the last 8, of which 2 are counted."""
    first, second = (
        np.asarray(energies(stationary.model_, as_sequences(part)[0].to_device()))
        for part in (world.x[:8], world.x[2:])
    )
    np.testing.assert_allclose(stationary.score(world.x[:8]), first.sum() / 96, rtol=1e-5)
    np.testing.assert_allclose(stationary.score(world.x), (first.sum() + second[-2:].sum()) / 120, rtol=1e-5)


def test_one_long_sequence_is_scored_in_windows(stationary, world):
    model = quick(window=12)
    model.__dict__.update(model_=stationary.model_, _data_info=stationary._data_info)
    np.testing.assert_allclose(model.score(np.concatenate(world.x[:8])), stationary.score(world.x[:8]), rtol=1e-5)
    with pytest.raises(ValueError, match="pass several, or a longer one"):
        model.score(world.x[0])
