"""Nothing is compiled again from one batch to the next."""

import equinox as eqx
import jax
import numpy as np
import pytest

from rpgssm.core.free_energy import free_energy
from rpgssm.core.smoother import smooth

from .problems import quick_options, random_problem


@pytest.mark.parametrize(
    ("chain", "precisions", "masked"),
    [
        ("stationary", ("shared diagonal",), False),
        ("stationary", ("shared full", "dependent full"), True),
        ("batched", ("dependent diagonal",), True),
    ],
)
def test_three_batches(chain, precisions, masked):
    traces = []

    def loss(floats, rest):
        traces.append("free energy")
        return free_energy(*eqx.combine(floats, rest))

    def posterior(problem):
        traces.append("posterior")
        return smooth(*problem)

    step = jax.jit(jax.value_and_grad(loss, has_aux=True), compiler_options=quick_options())
    infer = jax.jit(posterior, compiler_options=quick_options())
    values = []
    for seed in range(3):
        problem = random_problem(seed, chain, *precisions, masked=masked, batch=3, time=4, latent=2)
        (value, _), _ = step(*eqx.partition(problem, eqx.is_inexact_array))
        infer(problem)
        values.append(float(value))
    assert len(set(values)) == 3
    assert np.all(np.isfinite(values))
    assert sorted(traces) == ["free energy", "posterior"]
    assert step._cache_size() == infer._cache_size() == 1
