"""Each generative model on data that it can model, a linear system, against the exact smoother."""

from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm import Stopping
from rpgssm.core import Potentials, Precision, StationaryChain, smooth
from rpgssm.methods import DKF, KVAE, SVAE, LinearGaussianSSM

from .small_worlds import linear_medium, score_on

LINEAR: dict[str, Any] = {
    "latent_dim": 5,
    "encoder": "linear",
    "decoder": "linear",
    "noise": 1.0,
    "mask_size": 0,
    "verbose": False,
}
STEPS: dict[str, Any] = {"max_steps": 1000, "stopping": Stopping(validate_every=250), "learning_rate": 3e-3}
FASTER: dict[str, Any] = STEPS | {"learning_rate": 1e-2}


@pytest.fixture(scope="module")
def data():
    return linear_medium()


@pytest.fixture(scope="module")
def ceiling(data):
    return score_on(data, exact_smoother(data["train"].parameters))


def exact_smoother(p):
    """From observations to posterior means under the true parameters.

    x ~ N(Cz + d, R) is a potential on z with h = C'R⁻¹(x - d) and Λ = C'R⁻¹C.
    """
    chain, weights = StationaryChain(jnp.asarray(p["B"])), np.linalg.solve(p["R"], p["C"])
    precision = Precision(jnp.asarray(p["C"].T @ weights), shared=True, diagonal=False)

    def run(x):
        return np.asarray(smooth(chain, Potentials(jnp.asarray((x - p["d"]) @ weights), precision)).mean)

    return run


def score(model, data) -> float:
    model.fit(data["train"].observations, validation=data["validation"].observations)
    return score_on(data, model.transform)


def falls(loss: np.ndarray, parts: int = 8) -> bool:
    """Whether the loss, averaged over parts of the training, falls from each to the next, but for 2 % of the whole."""
    means = np.array([part.mean() for part in np.array_split(loss, parts)])
    return bool((np.diff(means) < 0.02 * (means[0] - means[-1])).all())


@pytest.mark.slow
@pytest.mark.usefixtures("long_run")
def test_em(data, ceiling):
    model = LinearGaussianSSM(5, iterations=30, verbose=False)
    assert score(model, data) > ceiling - 0.01
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
def test_latents_are_recovered(data, ceiling, model, below):
    assert score(model, data) > (0.6 if below is None else ceiling - below)
    assert falls(model.history_["loss"])
