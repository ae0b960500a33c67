"""Models here are small: compiling them takes longer than running them."""

import jax
import pytest


@pytest.fixture(scope="module", autouse=True)
def quick_compilation(compile_quickly):
    with compile_quickly():
        yield


@pytest.fixture
def long_run():
    """For a test that trains for long: compile with all optimisations, whatever the others do."""
    before = jax.config.values["jax_disable_most_optimizations"]
    jax.config.update("jax_disable_most_optimizations", False)
    yield
    jax.config.update("jax_disable_most_optimizations", before)
