import numpy as np
import pytest

from rpgssm.evaluation import Latents, LinearReadout, forecast_scores, r_squared


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
