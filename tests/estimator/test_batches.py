"""How batches are made, and what is done to them, as settings of the estimator."""

import copy

import numpy as np
import pytest

from rpgssm import DCL, EmpiricalMarginal, RandomFlips, RandomWindows, SimilarWindows

from .conftest import quick

PICTURES = np.random.default_rng(0).integers(0, 255, (8, 6, 8, 8)).astype(np.uint8)
SETTINGS = {"encoder": "linear", "marginal": EmpiricalMarginal(), "max_steps": 4, "batch_size": 4}


@pytest.fixture(scope="module")
def plain():
    return quick(**SETTINGS).fit(PICTURES)


@pytest.mark.parametrize(
    "setting", [{"sampler": SimilarWindows()}, pytest.param({"augment": RandomFlips()}, marks=pytest.mark.slow)]
)
def test_training_sees_other_batches_and_scoring_does_not(plain, setting):
    other = quick(**SETTINGS, **setting).fit(PICTURES)
    assert np.isfinite(other.history_["loss"]).all()
    assert not np.allclose(other.history_["loss"], plain.history_["loss"], rtol=1e-6)
    assert copy.copy(plain).set_params(**setting).score(PICTURES) == plain.score(PICTURES)


def test_other_methods_have_them_too():
    settings = {"encoder": "linear", "max_steps": 2, "batch_size": 4, "validation_fraction": None, "verbose": False}
    losses = [DCL(2, **settings, **more).fit(PICTURES).history_["loss"] for more in ({}, {"augment": RandomFlips()})]
    assert np.isfinite(losses).all()
    assert not np.allclose(*losses, rtol=1e-6)


@pytest.mark.parametrize(
    ("setting", "choices"),
    [
        ({"sampler": "alike"}, r"one of RandomWindows\(...\), SimilarWindows\(...\)"),
        ({"sampler": RandomFlips()}, r"one of RandomWindows\(...\), SimilarWindows\(...\)"),
        ({"sampler": SimilarWindows}, r"one of RandomWindows\(...\), SimilarWindows\(...\)"),
        ({"sampler": None}, r"one of RandomWindows\(...\), SimilarWindows\(...\)"),
        ({"augment": True}, r"one of RandomFlips\(...\), .*or None"),
        ({"augment": RandomWindows()}, r"one of RandomFlips\(...\), .*or None"),
    ],
)
def test_wrong_objects_are_refused_and_the_choices_listed(setting, choices):
    ((name, value),) = setting.items()
    with pytest.raises(ValueError, match=f"^{name} is .*: it must be {choices}$") as refused:
        quick().set_params(**setting).fit(PICTURES)
    assert repr(value) in str(refused.value)
