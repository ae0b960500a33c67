"""EM of the linear Gaussian model: exact likelihood, which never decreases, and parameters that are found."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.methods._lgssm_start import principal_components, start_model
from rpgssm.methods.lgssm import (
    LinearChain,
    LinearEmission,
    LinearGaussianModel,
    maximise,
    statistics,
)

from .linear_worlds import NOISE, D, N, T, batch_of, log_marginal, world

_statistics = eqx.filter_jit(statistics)


def expectations(model, data):
    return jax.tree.map(lambda x: np.asarray(x, np.float64), _statistics(model, data))


def test_the_likelihood_is_exact():
    w = world()
    r, none = jnp.full(D, NOISE**2, jnp.float64), jnp.zeros(D, jnp.float64)
    emission = LinearEmission(jnp.asarray(w.C), jnp.asarray(w.d), r, none, None, (D,))
    chain = LinearChain(*map(jnp.asarray, (w.m1, w.Q1, w.A, w.b, w.Q)))
    model = LinearGaussianModel(prior=chain, emissions={"x": emission})
    mask = np.random.default_rng(0).random((N, T)) < 0.7
    batch = batch_of(w, mask)
    expected = sum(log_marginal(w, n, mask[n]) for n in range(N))
    assert expectations(model, batch).log_likelihood == pytest.approx(expected, rel=1e-9)


def long_world(n=12, t=15):
    """Two modalities, missing frames and ragged sequences."""
    rng = np.random.default_rng(1)
    A = 0.9 * np.array([[np.cos(0.4), -np.sin(0.4)], [np.sin(0.4), np.cos(0.4)]])
    z = np.zeros((n, t, 2))
    z[:, 0] = rng.normal(size=(n, 2)) + 1
    for i in range(1, t):
        z[:, i] = z[:, i - 1] @ A.T + 0.1 + 0.4 * rng.normal(size=(n, 2))
    lengths = np.where(np.arange(n) % 3 == 0, t - 5, t).astype(np.int32)
    there = np.arange(t) < lengths[:, None]
    modalities = {}
    for name, d in (("left", 3), ("right", 4)):
        x = z @ rng.normal(size=(2, d)) + rng.normal(size=d) + 0.3 * rng.normal(size=(n, t, d))
        mask = there & (rng.random((n, t)) < 0.85)
        modalities[name] = Modality(np.where(mask[..., None], x, 0.0), mask)
    return Sequences(modalities, None, lengths)


def test_em_never_lowers_the_likelihood():
    data = long_world()
    model = start_model(2, data, 50, 0, dtype=jnp.float64)
    values = []
    for _ in range(40):
        s = expectations(model, data)
        values.append(float(s.log_likelihood))
        model = maximise(model, s)
    assert (np.diff(values) > -1e-8 * abs(values[-1])).all()
    assert values[-1] > values[0] + 1
    assert values[-1] - values[-2] < 0.05 * (values[-1] - values[0])


def test_the_m_step_is_a_maximum():
    """Moving any parameter a little from where the M-step put it lowers the expected log-likelihood."""
    data = long_world()
    start = start_model(2, data, 50, 0, dtype=jnp.float64)
    s = expectations(start, data)
    best = maximise(start, s)

    def expected(model):
        p = model.prior
        AB = np.concatenate([np.asarray(p.A), np.asarray(p.b)[:, None]], 1)
        total = 0.0
        for (yz, zz, yy), B, Q in [
            ((s.steps.yz, s.steps.zz, s.steps.yy), AB, np.asarray(p.Q)),
            *(
                (
                    (s.emissions[name].yz, s.emissions[name].zz, np.diag(s.emissions[name].yy)),
                    np.concatenate([np.asarray(e.C), np.asarray(e.d)[:, None]], 1),
                    np.diag(np.asarray(e.r)),
                )
                for name, e in model.emissions.items()
            ),
        ]:
            scatter = yy - B @ yz.T - yz @ B.T + B @ zz @ B.T
            if not np.allclose(Q, np.diag(np.diagonal(Q))):
                total += -0.5 * np.trace(np.linalg.solve(Q, scatter)) - 0.5 * zz[-1, -1] * np.linalg.slogdet(Q)[1]
            else:
                q = np.diagonal(Q)
                total += -0.5 * np.sum(np.diagonal(scatter) / q) - 0.5 * zz[-1, -1] * np.log(q).sum()
        m = np.asarray(p.m1)
        first = s.first_square - np.outer(m, s.first) - np.outer(s.first, m) + s.count * np.outer(m, m)
        Q1 = np.asarray(p.Q1)
        return total - 0.5 * np.trace(np.linalg.solve(Q1, first)) - 0.5 * s.count * np.linalg.slogdet(Q1)[1]

    rng, top = np.random.default_rng(0), expected(best)
    for part in ("A", "b", "Q", "m1", "Q1"):
        value = np.asarray(getattr(best.prior, part))
        for sign in (-1, 1):
            step = rng.normal(size=value.shape)
            step = step + step.T if part in ("Q", "Q1") else step
            moved = eqx.tree_at(lambda m, p=part: getattr(m.prior, p), best, jnp.asarray(value + sign * 1e-3 * step))
            assert expected(moved) < top
    for name in ("left", "right"):
        for part in ("C", "d", "r"):
            value = np.asarray(getattr(best.emissions[name], part))
            for sign in (-1, 1):
                moved = jnp.asarray(value + sign * 1e-3 * rng.normal(size=value.shape))
                other = eqx.tree_at(lambda m, n=name, p=part: getattr(m.emissions[n], p), best, moved)
                assert expected(other) < top


def test_images_are_reduced_to_principal_components():
    rng = np.random.default_rng(0)
    z = np.cumsum(rng.normal(size=(6, 8, 3)), 1)
    images = (z @ rng.normal(size=(3, 64)) + 5).reshape(6, 8, 8, 8)
    data = Sequences({"x": Modality(images)})
    model = start_model(3, data, 10, 0, dtype=jnp.float64)
    e = model.emissions["x"]
    assert e.components is not None
    assert e.C.shape == (10, 3)
    W = np.asarray(e.components)
    np.testing.assert_allclose(W[:3] @ W[:3].T, np.eye(3), atol=1e-9)
    y = e.reduced(jnp.asarray(images))
    # three dimensions are all there is: nothing is lost, and the model's own emission gives the images back
    latents = np.linalg.lstsq(np.asarray(e.C), np.asarray(y).reshape(-1, 10).T, rcond=None)[0].T.reshape(6, 8, 3)
    np.testing.assert_allclose(e.mean(jnp.asarray(latents)), images, atol=1e-6)


def test_components_are_padded_where_there_are_not_enough():
    components = principal_components(np.random.default_rng(0).normal(size=(3, 20)), 6, 0)
    assert components.shape == (6, 20)
    assert not components[3:].any()


@pytest.mark.slow
def test_more_latents_than_numbers():
    data = long_world(5, 12)
    model = start_model(8, data, 50, 0, dtype=jnp.float64)
    before = expectations(model, data)
    after = expectations(maximise(model, before), data)
    assert after.log_likelihood > before.log_likelihood
