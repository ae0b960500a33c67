"""One frame at a time against the whole sequence at once."""

import jax
import numpy as np
import pytest

from rpgssm.core import online_start, online_step
from rpgssm.core.smoother import filter

from .problems import random_problem


@pytest.mark.parametrize(("kind", "masked"), [("stationary", True), ("general", False), ("batched", True)])
def test_stepping_is_filtering(kind, masked):
    chain, potentials = random_problem(0, kind, "dependent full", masked=masked, time=7)
    whole = filter(chain, potentials)
    h = potentials[0].masked_h()
    Lam = potentials[0].masked_precision()
    batch, time, _ = h.shape
    step = jax.jit(online_step)
    before = step._cache_size()
    state = online_start(chain, batch)
    for t in range(time):
        state, out = step(chain, state, h[:, t], Lam[:, t])
        np.testing.assert_allclose(out.mean, whole.mean[:, t], rtol=1e-9, atol=1e-10)
        np.testing.assert_allclose(out.cov, whole.cov[:, t], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(out.log_z, whole.log_z, rtol=1e-9)
    assert step._cache_size() <= before + 1
