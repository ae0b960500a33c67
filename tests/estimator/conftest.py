"""Fitted models that many tests look at and none changes: each is trained once, for a few steps."""

import pytest

from rpgssm.estimator import RPGSSM

from .worlds import simulate

PUSH_DIM = 2


def quick(**settings) -> RPGSSM:
    defaults = {"latent_dim": 2, "encoder": "linear", "max_steps": 20, "batch_size": 8, "verbose": False}
    return RPGSSM(**(defaults | {"validation_fraction": None} | settings))


@pytest.fixture(scope="session")
def world():
    return simulate(n=10, t=12)


@pytest.fixture(scope="session")
def stationary(world):
    return quick().fit(world.x)


@pytest.fixture(scope="session")
def free(world):
    return quick(prior="free", max_steps=10).fit(world.x)


@pytest.fixture(scope="session")
def pushed():
    import numpy as np

    return simulate(n=10, t=12, push=np.array([[0.3, 0.0], [0.0, 0.4]]))


@pytest.fixture(scope="session")
def controlled(pushed):
    return quick(max_steps=10, learning_rate=0.05).fit(pushed.x, controls=pushed.u)


@pytest.fixture(scope="session")
def discrete(pushed):
    """A network prior with a discrete input of three values."""
    u = (abs(pushed.u[..., 0]) * 2).clip(0, 2).astype(int)
    return quick(max_steps=10, prior="network", learning_rate=0.05).fit(pushed.x, controls=u), u


@pytest.fixture(scope="session")
def two(world):
    """A model of two modalities."""
    return quick(max_steps=10, data_dependent=True).fit({"left": world.x[..., :3], "right": world.x[..., 3:]})
