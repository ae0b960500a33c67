"""Fitted models that many tests look at and none changes: each is trained once, for a few steps."""

from typing import Any

import numpy as np
import pytest

from rpgssm import RPGSSM, Cholesky, Free, Network

from .worlds import simulate


@pytest.fixture(scope="session", autouse=True)
def quick_compilation(compile_quickly):
    with compile_quickly():
        yield


def quick(**settings) -> RPGSSM:
    """A small model that trains in no time."""
    usual: dict[str, Any] = {"latent_dim": 2, "encoder": "linear", "max_steps": 20, "batch_size": 8}
    usual |= {"learning_rate": 3e-3, "precision": Cholesky(start=1.0), "verbose": False, "validation_fraction": None}
    return RPGSSM(**(usual | settings))


@pytest.fixture(scope="session")
def world():
    return simulate(n=10, t=12)


@pytest.fixture(scope="session")
def stationary(world):
    return quick().fit(world.x)


@pytest.fixture(scope="session")
def free(world):
    return quick(prior=Free(), max_steps=10).fit(world.x)


@pytest.fixture(scope="session")
def pushed():
    return simulate(n=10, t=12, push=np.array([[0.3, 0.0], [0.0, 0.4]]))


@pytest.fixture(scope="session")
def controlled(pushed):
    return quick(max_steps=10, learning_rate=0.05).fit(pushed.x, controls=pushed.u)


@pytest.fixture(scope="session")
def discrete(pushed):
    """A network prior with a discrete input of three values."""
    u = (abs(pushed.u[..., 0]) * 2).clip(0, 2).astype(int)
    return quick(max_steps=10, prior=Network(), learning_rate=0.05).fit(pushed.x, controls=u), u


@pytest.fixture(scope="session")
def two(world):
    """A model of two modalities."""
    return quick(max_steps=10, precision=Cholesky(data_dependent=True, start=1.0)).fit(
        {"left": world.x[..., :3], "right": world.x[..., 3:]}
    )
