import numpy as np
import pytest

from rpgssm.evaluation import Latents, LinearReadout, Misfit, calibrate, coverage


def test_coverage_of_normal_errors():
    errors = np.random.default_rng(0).standard_normal(100_000)
    assert coverage(errors, 0.5) == pytest.approx(0.5, abs=0.01)
    assert coverage(errors, 0.9) == pytest.approx(0.9, abs=0.01)
    assert coverage(2 * errors, 0.9) < 0.62
    assert coverage(np.array([0.6744, 0.6746]), 0.5) == 0.5


def test_misfit_is_what_the_posterior_does_not_explain():
    """A target that is linear in z plus noise of variance 0.5 that no latent knows of."""
    rng = np.random.default_rng(0)
    mean = rng.standard_normal((60, 40, 2))
    cov = np.broadcast_to(np.diag([0.2, 0.1]), (60, 40, 2, 2))
    z = mean + rng.standard_normal(mean.shape) * np.sqrt([0.2, 0.1])
    y = {"y": z @ np.array([[1.0], [2.0]]) + np.sqrt(0.5) * rng.standard_normal((60, 40, 1))}
    latents = Latents(mean, cov)
    readout = LinearReadout.fit(mean, y)
    misfit = Misfit.fit(readout, latents, y)
    assert misfit.extra["y"] == pytest.approx(0.5, rel=0.1)
    assert misfit.factor["y"] == 1
    assert calibrate(readout, latents, y)["y"].coverage["90%"] < 0.85
    assert calibrate(readout, latents, y, misfit)["y"].coverage["90%"] == pytest.approx(0.9, abs=0.02)


def test_a_posterior_that_is_too_wide_is_scaled_down():
    """Errors of variance 0.3, a quarter of what the posterior says, in frames that differ by a factor of nine."""
    rng = np.random.default_rng(1)
    mean = rng.standard_normal((60, 40, 1))
    cov = np.where(np.arange(40) % 2, 0.24, 2.16)[None, :, None, None] * np.ones((60, 1, 1, 1))
    y = {"y": mean + np.sqrt(cov[..., 0] / 4) * rng.standard_normal(mean.shape)}
    latents = Latents(mean, cov)
    readout = LinearReadout.fit(mean, y)
    misfit = Misfit.fit(readout, latents, y)
    assert misfit.factor["y"] == pytest.approx(0.25, rel=0.1)
    assert misfit.extra["y"] == 0
    assert calibrate(readout, latents, y)["y"].coverage["90%"] > 0.99
    assert calibrate(readout, latents, y, misfit)["y"].coverage["90%"] == pytest.approx(0.9, abs=0.02)


def test_without_covariances_there_is_nothing_to_calibrate():
    z = np.random.default_rng(0).standard_normal((3, 4, 2))
    readout = LinearReadout.fit(z, {"y": z[..., :1]})
    with pytest.raises(ValueError, match="no covariances"):
        calibrate(readout, Latents(z), {"y": z[..., :1]})
    with pytest.raises(ValueError, match="no covariances"):
        Misfit.fit(readout, Latents(z), {"y": z[..., :1]})
