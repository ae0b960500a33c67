"""Auxiliary decoders: what they are trained on."""

import numpy as np
import pytest

from rpgssm import RPGSSM
from rpgssm.data.repeated import is_repeated
from rpgssm.estimator import _decoders
from rpgssm.evaluation import collect


def test_draws_follow_the_posterior(stationary, world):
    posterior = stationary.smooth(world.x)
    assert is_repeated(posterior.cov)
    assert is_repeated(collect(stationary.smooth, world.x, batch=4).cov)
    draws = _decoders._draws(posterior, 4000, seed=0)
    assert draws.shape == (10, 12, 4000, 2)
    np.testing.assert_allclose(draws.mean(2), posterior.mean, atol=0.06)
    spread = np.einsum("ntsk,ntsl->ntkl", *[draws - draws.mean(2, keepdims=True)] * 2) / 4000
    np.testing.assert_allclose(spread, np.broadcast_to(posterior.cov, spread.shape), atol=0.1)


def test_a_decoder_of_draws_expects_more_error(stationary, world, tmp_path):
    """It knows less of the latents than one of the means, so the variance it learns is larger."""
    variance = []
    for samples in (0, 5):
        model = RPGSSM.load(stationary.save(tmp_path / str(samples)))
        model.fit_decoder(world.x, steps=60, learning_rate=1e-2, samples=samples)
        assert model.reconstruct(world.x).shape == world.x.shape
        (decoder,) = model.decoders_.values()
        variance.append(float(decoder.variance))
    assert variance[1] > 1.1 * variance[0]
    with pytest.raises(ValueError, match="samples is -1"):
        model.fit_decoder(world.x, samples=-1)
