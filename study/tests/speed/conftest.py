"""The peers are code of others, which relies on JAX's usual promotion rules."""

import pytest


@pytest.fixture(autouse=True)
def _usual_promotion(lenient_promotion):
    """Allow implicit promotion of ranks and dtypes, whatever the rest of the tests demand of our own code."""
