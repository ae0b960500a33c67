"""The predicted memory against what the compiler allocates."""

from itertools import product

import jax
import jax.numpy as jnp
import pytest

from rpgssm.core import Potentials, Precision, StationaryChain, free_energy, predict_memory

F32 = jnp.float32


CASES = [(True, True, 32, 200, 4), (False, False, 16, 60, 12)]
EVERYTHING = [(*kind, *size) for kind in product((True, False), repeat=2) for size in ((16, 60, 12), (32, 200, 4))]


@pytest.mark.parametrize(("shared", "masked", "batch", "time", "latent"), CASES)
def test_within_a_factor_of_two(shared, masked, batch, time, latent):
    check(shared, masked, batch, time, latent)


@pytest.mark.slow
@pytest.mark.parametrize(("shared", "masked", "batch", "time", "latent"), sorted(set(EVERYTHING) - set(CASES)))
def test_within_a_factor_of_two_everywhere(shared, masked, batch, time, latent):
    check(shared, masked, batch, time, latent)


def check(shared, masked, batch, time, latent):
    lead = () if shared else (batch, time)
    zeros = lambda *shape: jnp.zeros(shape, F32)  # noqa: E731
    parameters = StationaryChain(zeros(latent, latent)), zeros(batch, time, latent), zeros(*lead, latent, latent)
    mask = jnp.ones((batch, time), bool) if masked else None

    def loss(parameters, mask):
        chain, h, value = parameters
        return free_energy(chain, Potentials(h, Precision(value, shared, False), mask))[0]

    analysis = jax.jit(jax.value_and_grad(loss)).lower(parameters, mask).compile().memory_analysis()
    used = analysis.temp_size_in_bytes + analysis.output_size_in_bytes + analysis.argument_size_in_bytes
    predicted = predict_memory(batch, time, latent, shared=shared, masked=masked)
    assert 0.5 < predicted / used < 2, (predicted, used)
