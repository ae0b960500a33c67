"""Each kind of model and of data learns something that can be measured.

The world is linear and Gaussian with two latents; the exact smoother reaches a linear R² of 0.945 with all frames.
"""

import numpy as np
import pytest

from rpgssm import Cholesky, Controlled, Network

from .conftest import quick
from .worlds import linear_r2, simulate


def learner(**settings):
    return quick(**({"max_steps": 300, "batch_size": 32, "learning_rate": 1e-2} | settings))


def test_latents_are_recovered():
    world = simulate()
    assert linear_r2(learner(max_steps=150, learning_rate=3e-2).fit_transform(world.x), world.z) > 0.9


@pytest.mark.slow
def test_data_dependent_precision_sees_which_frames_are_noise():
    """A third of the frames shows strong noise, which their last number says; it must not be believed."""
    world, rng = simulate(), np.random.default_rng(5)
    bad = rng.random(world.x.shape[:2]) < 0.33
    x = np.where(bad[..., None], 3 * rng.normal(size=world.x.shape), world.x)
    x = np.concatenate([x, bad[..., None]], -1).astype(np.float32)
    scores = {}
    for dependent in (False, True):
        latents = learner(precision=Cholesky(data_dependent=dependent, start=1.0), encoder="mlp").fit_transform(x)
        scores[dependent] = linear_r2(latents, world.z)
    assert scores[True] > 0.8
    assert scores[True] > scores[False] + 0.02


@pytest.mark.slow
def test_masked_frames():
    world = simulate()
    mask = np.random.default_rng(5).random(world.x.shape[:2]) < 0.6
    x = np.where(mask[..., None], world.x, np.nan)
    latents = learner().fit_transform(x)
    assert linear_r2(latents, world.z) > 0.8
    gaps = [z[~m] for z, m in zip(latents, mask, strict=True)]
    assert linear_r2(gaps, [z[~m] for z, m in zip(world.z, mask, strict=True)]) > 0.6


@pytest.mark.slow
def test_ragged_sequences():
    world = simulate()
    lengths = np.random.default_rng(5).integers(15, 41, 64)
    latents = learner().fit_transform([x[:n] for x, n in zip(world.x, lengths, strict=True)])
    assert linear_r2(latents, [z[:n] for z, n in zip(world.z, lengths, strict=True)]) > 0.9


@pytest.mark.slow
def test_two_modalities_are_better_than_one():
    """The exact smoother reaches 0.86 with both."""
    world = simulate(noise=1.5)
    x = {"left": world.x[..., :3], "right": world.x[..., 3:]}
    both, one = (linear_r2(learner(learning_rate=3e-2).fit_transform(x), world.z) for x in (x, x["left"]))
    assert both > 0.84
    assert both > one + 0.05


@pytest.mark.slow
@pytest.mark.parametrize("prior", [Controlled(), Network()], ids=["controlled", "network"])
def test_controls_make_forecasts_better(prior):
    world = simulate(push=np.array([[1.0, 0.0], [0.0, 1.0]]), t=41)
    assert world.u is not None
    x, u = world.x[:, :30], world.u
    model = learner(prior=prior).fit(x, controls=u[:, :30])
    assert linear_r2(model.transform(x, controls=u[:, :30]), world.z[:, :30]) > 0.9
    with_controls = model.forecast(x, 10, controls=u[:, :40]).mean
    assert linear_r2(with_controls, world.z[:, 30:40]) > 0.6
    blind = learner().fit(x).forecast(x, 10).mean
    assert linear_r2(with_controls, world.z[:, 30:40]) > linear_r2(blind, world.z[:, 30:40]) + 0.2
