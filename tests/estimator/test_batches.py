"""Batches that look alike and pictures in mirrors, as settings of the estimator."""

import copy

import numpy as np
import pytest

from rpgssm.estimator.baselines import DCL

from .conftest import quick

PICTURES = np.random.default_rng(0).integers(0, 255, (8, 6, 8, 8)).astype(np.uint8)


@pytest.fixture(scope="module")
def plain():
    return quick(encoder="linear", marginal="empirical", max_steps=4, batch_size=4).fit(PICTURES)


@pytest.mark.parametrize("setting", [{"batches": "alike"}, pytest.param({"mirror": True}, marks=pytest.mark.slow)])
def test_training_sees_other_batches_and_scoring_does_not(plain, setting):
    other = quick(encoder="linear", marginal="empirical", max_steps=4, batch_size=4, **setting).fit(PICTURES)
    assert np.isfinite(other.history_["loss"]).all()
    assert not np.allclose(other.history_["loss"], plain.history_["loss"], rtol=1e-6)
    assert copy.copy(plain).set_params(**setting).score(PICTURES) == plain.score(PICTURES)


def test_other_methods_have_them_too():
    settings = {"encoder": "linear", "max_steps": 2, "batch_size": 4, "validation_fraction": None, "verbose": False}
    losses = [DCL(2, **settings, **more).fit(PICTURES).history_["loss"] for more in ({}, {"mirror": True})]
    assert np.isfinite(losses).all()
    assert not np.allclose(*losses, rtol=1e-6)


def test_unknown_batches_are_refused():
    with pytest.raises(ValueError, match="batches is 'similar': it must be one of 'random', 'alike'"):
        quick().set_params(batches="similar").fit(PICTURES)
