"""Each generative model on data that it can model: the task `linear-medium`, against its exact smoother."""

from typing import Any

import numpy as np
import pytest

from rpgssm.estimator.baselines import DKF, KVAE, SVAE, LinearGaussianSSM
from rpgssm.evaluation import LinearReadout
from rpgssm.evaluation.ceiling import linear_ceiling
from rpgssm.tasks import load_task

LINEAR: dict[str, Any] = {
    "latent_dim": 5,
    "encoder": "linear",
    "decoder": "linear",
    "noise": 1.0,
    "mask_size": 0,
    "verbose": False,
}
STEPS: dict[str, Any] = {"max_steps": 1000, "validate_every": 250, "learning_rate": 3e-3}
FASTER: dict[str, Any] = STEPS | {"learning_rate": 1e-2}


@pytest.fixture(scope="module")
def task():
    return load_task("linear-medium", cache=False)


@pytest.fixture(scope="module")
def ceiling(task):
    return linear_ceiling(task)["z"]


def score(model, task) -> float:
    model.fit(task.train.observations, validation=task.validation.observations)
    train, test = (model.transform(split.observations) for split in (task.train, task.test))
    return LinearReadout.fit(train, task.train.targets).score(test, task.test.targets)["z"]


def falls(loss: np.ndarray, parts: int = 8) -> bool:
    """Whether the loss, averaged over parts of the training, falls from each to the next, but for 2 % of the whole."""
    means = np.array([part.mean() for part in np.array_split(loss, parts)])
    return bool((np.diff(means) < 0.02 * (means[0] - means[-1])).all())


@pytest.mark.slow
@pytest.mark.usefixtures("long_run")
def test_em(task, ceiling):
    model = LinearGaussianSSM(5, max_steps=30, verbose=False)
    assert score(model, task) > ceiling - 0.01
    assert (np.diff(model.history_["loss"]) < 1e-4).all()
    np.testing.assert_allclose(np.abs(np.linalg.eigvals(model.transition_)), 0.95, atol=0.03)


@pytest.mark.slow
@pytest.mark.usefixtures("long_run")
@pytest.mark.parametrize(
    ("model", "below"),
    [
        (SVAE(**LINEAR, **FASTER), 0.05),
        (DKF(**LINEAR, **STEPS, posterior="linear"), 0.05),
        (DKF(**LINEAR, **STEPS, posterior="mean-field"), None),
        (DKF(**LINEAR, **STEPS, posterior="nonlinear"), None),
        (DKF(**LINEAR, **STEPS, posterior="convolutional"), None),
        (KVAE(**LINEAR, **STEPS, code_dim=5, warmup_steps=300), None),
    ],
    ids=["svae", "dkf-linear", "dkf-mean-field", "dkf-nonlinear", "dkf-convolutional", "kvae"],
)
def test_latents_are_recovered(task, ceiling, model, below):
    assert score(model, task) > (0.6 if below is None else ceiling - below)
    assert falls(model.history_["loss"])
