"""Forecasts against the joint Gaussian in which the future frames are simply not observed."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core import GaussianChain, Moments, forecast
from rpgssm.core.smoother import filter, smooth

from .problems import quick_jit, random_problem

SEEN, STEPS = 4, 3


def split(chain, potentials):
    """The chain up to the last seen frame, the one after it, and potentials of the seen frames."""
    seen = tuple(jax.tree.map(lambda x: x[:, :SEEN] if x.ndim > 2 else x, p) for p in potentials)
    if not isinstance(chain, GaussianChain):
        return chain, chain, seen
    part = lambda s: GaussianChain(chain.m1, chain.Q1, *(_time(x, s, chain) for x in (chain.A, chain.b, chain.Q)))  # noqa: E731
    return part(slice(0, SEEN - 1)), part(slice(SEEN - 1, None)), seen


def _time(x, s, chain):
    return x[:, s] if chain.batched else x[s]


@pytest.mark.parametrize(
    ("kind", "precision"),
    [("stationary", "dependent full"), ("general", "shared full"), ("batched", "dependent full")],
)
def test_forecast_is_smoothing_without_observations(kind, precision):
    chain, potentials = random_problem(4, kind, precision, time=SEEN + STEPS)
    past, future, seen = split(chain, potentials)
    last = quick_jit(filter)(past, seen)
    out = forecast(future, Moments(last.mean[:, -1], last.cov[:, -1]), STEPS, samples=20_000, key=jax.random.key(0))
    observed = jnp.broadcast_to(jnp.arange(SEEN + STEPS) < SEEN, potentials[0].h.shape[:2])
    masked = tuple(type(p)(p.h, p.precision, observed) for p in potentials)
    exact = quick_jit(smooth)(chain, masked)
    np.testing.assert_allclose(out.mean, exact.mean[:, SEEN:], rtol=1e-9, atol=1e-10)
    np.testing.assert_allclose(jnp.broadcast_to(out.cov, exact.cov[:, SEEN:].shape), exact.cov[:, SEEN:], atol=1e-10)
    assert out.samples is not None
    assert out.samples.shape == (20_000, *out.mean.shape)
    spread = np.sqrt(np.diagonal(exact.cov[:, SEEN:], axis1=-2, axis2=-1))
    assert np.all(np.abs(out.samples.mean(0) - out.mean) < 5 * spread / np.sqrt(20_000))
    assert np.all(np.abs(out.samples.var(0) - spread**2) < 5 * spread**2 * np.sqrt(2 / 20_000))


def test_errors():
    chain, potentials = random_problem(5, "general", "shared full", time=4)
    last = filter(chain, potentials)
    moments = Moments(last.mean[:, -1], last.cov[:, -1])
    with pytest.raises(ValueError, match="3 transitions, fewer than steps = 9"):
        forecast(chain, moments, 9)
    with pytest.raises(ValueError, match="pass key="):
        forecast(chain, moments, 2, samples=3)
