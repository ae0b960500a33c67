import numpy as np
import pytest

from rpgssm.evaluation import LinearReadout
from rpgssm_study.evaluation import background_spread, robustness


def means(noise, variants=5, seed=0):
    rng = np.random.default_rng(seed)
    z = rng.standard_normal((1, 20, 50, 3))
    return z + noise * rng.standard_normal((variants, 20, 50, 3))


def test_spread_is_the_share_of_the_background():
    assert background_spread(means(0.0)) == pytest.approx(0, abs=1e-12)
    noise = 0.5
    within, total = noise**2 * 4 / 5, 1 + noise**2  # four fifths: the mean over five variants is taken out
    assert background_spread(means(noise)) == pytest.approx(within / total, rel=0.03)
    assert background_spread(np.random.default_rng(0).standard_normal((5, 20, 50, 3))) == pytest.approx(0.8, rel=0.02)


def test_spread_does_not_depend_on_coordinates():
    z = means(0.3)
    change = np.random.default_rng(1).standard_normal((3, 3)) * np.array([1.0, 10.0, 0.01])
    assert background_spread(z @ change + 7) == pytest.approx(background_spread(z), rel=1e-6)


def test_a_latent_that_never_moves_adds_nothing():
    z = means(0.3)
    z[..., 2] = 0
    assert background_spread(z) == pytest.approx(2 / 3 * background_spread(z[..., :2]))


def test_targets_may_be_steadier_than_latents():
    z = means(0.0)
    z[..., 2] = np.random.default_rng(3).standard_normal(z.shape[:-1])
    readout = LinearReadout.fit(z[0], {"y": z[0][..., :2]})
    r = robustness(z, readout)
    assert r.targets["y"] == pytest.approx(0, abs=1e-6)
    assert r.latents == pytest.approx(0.8 / 3, rel=0.05)


def test_one_background_is_not_enough():
    with pytest.raises(ValueError, match="at least two"):
        background_spread(means(0.1, variants=1))
