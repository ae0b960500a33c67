"""Settings of the benchmark's tests: the peers are other people's code and rely on JAX's usual promotion rules."""

from collections.abc import Iterator

import jax
import pytest


@pytest.fixture(autouse=True)
def usual_promotion() -> Iterator[None]:
    """Allow implicit promotion of ranks and types, whatever the rest of the tests demand of our own code."""
    with jax.numpy_rank_promotion("allow"), jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def float64() -> Iterator[None]:
    """Run one test in double precision."""
    with jax.enable_x64(True):
        yield
