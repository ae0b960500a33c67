from types import SimpleNamespace

import numpy as np
import pytest

from rpgssm.evaluation import Latents, LinearReadout, Misfit, collect, forecast_scores, look_ahead, r_squared


def decaying(n=3000, steps=6, a=0.8, seed=0):
    """A stationary scalar process known exactly at time 0: the forecast a^h z_0 has R² = a^2h and variance 1 - a^2h."""
    rng = np.random.default_rng(seed)
    z = np.empty((n, steps + 1, 1))
    z[:, 0] = rng.standard_normal((n, 1))
    for h in range(steps):
        z[:, h + 1] = a * z[:, h] + np.sqrt(1 - a * a) * rng.standard_normal((n, 1))
    power = a ** np.arange(1, steps + 1)
    mean = z[:, :1] * power[None, :, None]
    cov = np.broadcast_to((1 - power**2)[None, :, None, None], (n, steps, 1, 1))
    return z, Latents(mean, cov), power


def test_scores_against_horizon():
    z, forecast, power = decaying()
    readout = LinearReadout.fit(z, {"y": 2 * z + 1})
    scores = forecast_scores(readout, forecast, {"y": 2 * z[:, 1:] + 1})["y"]
    np.testing.assert_allclose(scores.r_squared, power**2, atol=0.04)
    assert scores.r_squared[2] == pytest.approx(r_squared(2 * z[:, 3] + 1, 2 * forecast.mean[:, 2] + 1))
    np.testing.assert_allclose(scores.coverage["90%"], 0.9, atol=0.02)
    np.testing.assert_allclose(scores.coverage["50%"], 0.5, atol=0.04)


def test_without_covariances_only_r_squared():
    z, forecast, _ = decaying(n=50)
    readout = LinearReadout.fit(z, {"y": z})
    scores = forecast_scores(readout, Latents(forecast.mean), {"y": z[:, 1:]})["y"]
    assert scores.coverage == {}
    assert scores.r_squared.shape == (6,)


def test_frames_that_were_not_forecast_are_refused():
    z, forecast, _ = decaying(n=50)
    readout = LinearReadout.fit(z, {"y": z})
    with pytest.raises(ValueError, match="cut the targets"):
        forecast_scores(readout, forecast, {"y": z})


@pytest.mark.parametrize("wrong", [0.1, 1.0, 4.0])
def test_fitted_intervals_widen_and_cover_at_every_horizon(wrong):
    """Covariances that are too small or too large by a factor, and a target with an error that grows ahead."""
    rng = np.random.default_rng(3)
    z, forecast, power = decaying()
    assert forecast.cov is not None
    cov = wrong * forecast.cov
    targets = {"y": z[:, 1:] + 0.3 * np.sqrt(np.arange(1, 7))[:, None] * rng.standard_normal((3000, 6, 1))}
    readout = LinearReadout.fit(z, {"y": z})
    first, second = slice(0, 1500), slice(1500, 3000)
    learnt = Latents(forecast.mean[first], cov[first])
    misfit = Misfit.fit(readout, learnt, {"y": targets["y"][first]}, by_frame=True)
    held_out = Latents(forecast.mean[second], cov[second])
    scores = forecast_scores(readout, held_out, {"y": targets["y"][second]}, misfit)["y"]
    np.testing.assert_allclose(scores.coverage["90%"], 0.9, atol=0.03)
    width = misfit.deviation(readout, cov[second])["y"][0, :, 0]
    np.testing.assert_allclose(width**2, 1 - power**2 + 0.09 * np.arange(1, 7), rtol=0.15)
    assert (np.diff(width) > 0).all()


def test_looking_ahead_shows_only_the_context():
    x = np.arange(2 * 9.0).reshape(2, 9, 1)

    def last(past, steps):
        return Latents(np.repeat(past[:, -1:], steps, 1))

    ahead, truth = look_ahead(last, x, {"y": x}, context=4, horizon=3)
    np.testing.assert_array_equal(ahead.mean[..., 0], [[3, 3, 3], [12, 12, 12]])
    np.testing.assert_array_equal(truth["y"][..., 0], [[4, 5, 6], [13, 14, 15]])
    with pytest.raises(ValueError, match="context = 7 and horizon = 3 do not fit into sequences of 9 frames"):
        look_ahead(last, x, {"y": x}, context=7, horizon=3)


def test_a_covariance_that_all_sequences_share_is_kept_once():
    rng = np.random.default_rng(5)
    x, shared = rng.standard_normal((7, 4, 2)), np.stack([np.eye(2) * s for s in (1.0, 2.0, 3.0, 4.0)])[None]
    once = collect(lambda part: SimpleNamespace(mean=part, cov=shared), x, batch=3)
    full = collect(lambda part: Latents(part, np.repeat(shared, len(part), 0)), x, batch=3)
    assert once.cov is not None
    assert full.cov is not None
    assert once.cov.strides[0] == 0
    np.testing.assert_array_equal(once.cov, full.cov)
    readout = LinearReadout.fit(x, {"y": x @ np.array([[1.0], [2.0]])})
    np.testing.assert_allclose(readout.variance(once.cov)["y"], readout.variance(full.cov)["y"])
    differ = iter([shared, 2 * shared, shared])
    mixed = collect(lambda part: SimpleNamespace(mean=part, cov=next(differ)), x, batch=3)
    assert mixed.cov is not None
    np.testing.assert_array_equal(mixed.cov[:, 0, 0, 0], [1, 1, 1, 2, 2, 2, 1])


def test_a_horizon_at_which_all_sequences_agree_has_no_score():
    latents = Latents(np.random.default_rng(0).normal(size=(4, 3, 1)))
    truth = np.random.default_rng(1).normal(size=(4, 3, 1))
    readout = LinearReadout.fit(latents.mean, {"lick": truth})
    truth[:, 1] = 1.0
    curve = forecast_scores(readout, latents, {"lick": truth})["lick"].r_squared
    np.testing.assert_array_equal(np.isnan(curve), [False, True, False])
