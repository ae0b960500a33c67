"""Models here are small: compiling them takes longer than running them."""

import pytest


@pytest.fixture(scope="session", autouse=True)
def quick_compilation(compile_quickly):
    with compile_quickly():
        yield
