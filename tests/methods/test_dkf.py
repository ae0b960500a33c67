"""The four posteriors of the deep Kalman filter: bounds below the likelihood, divergences, moments and samples."""

from typing import Any, cast, get_args

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.methods._generative import ELBO
from rpgssm.methods.dkf import DKF, DKFModel, PosteriorKind, TimeConvolutions
from rpgssm.nn.encoders import LinearEncoder

from .linear_worlds import D, K, N, T, batch_of, emission_of, log_marginal, log_normal, prior_of, world

SAMPLES = 1000


def model_of(w, posterior, **settings) -> DKFModel:
    encoders = {"x": LinearEncoder((D,), dtype=jnp.float64)}
    key = jax.random.key(1)
    return DKFModel(prior_of(w), encoders, {"x": emission_of(w)}, posterior, key=key, dtype=jnp.float64, **settings)


def kinds(*quick: str) -> list:
    """All posteriors, of which these are always tested and the others are slow."""
    return [k if k in quick else pytest.param(k, marks=pytest.mark.slow) for k in get_args(PosteriorKind)]


@eqx.filter_jit
def everything(model, batch):
    """Bounds and trajectories for many samples, and the moments."""
    keys = jax.random.split(jax.random.key(0), SAMPLES)
    bound = jax.vmap(lambda key: model.bound(batch, key))(keys)
    return bound, model.sample_posterior(jax.random.key(1), batch, SAMPLES), model.smooth(batch)


@pytest.mark.parametrize("posterior", kinds("linear"))
def test_bound_moments_and_samples(posterior):
    w = world()
    model = model_of(w, posterior, covariance="cholesky" if posterior == "linear" else "diagonal")
    bound, z, marginals = everything(model, batch_of(w))
    values = np.asarray(bound.reconstruction) - np.asarray(bound.kl)
    error = values.std(0) / SAMPLES**0.5
    likelihood = np.array([log_marginal(w, n) for n in range(N)])
    assert (values.mean(0) + 4 * error < likelihood).all()
    z, mean, cov = (np.asarray(x) for x in (z, marginals.mean, marginals.cov))
    spread = np.sqrt(np.diagonal(cov, axis1=-2, axis2=-1))
    # the moments of the nonlinear posterior are themselves over 25 samples
    tolerance = 5 / SAMPLES**0.5 + (5 / 25**0.5 if posterior == "nonlinear" else 0)
    assert (abs(z.mean(0) - mean) < tolerance * spread).all()
    found = np.einsum("sntk,sntl->ntkl", z - mean, z - mean) / SAMPLES
    assert abs(found - cov).max() < (0.6 if posterior == "nonlinear" else 0.3) * cov.max()


def test_the_divergence_of_the_nonlinear_posterior_against_monte_carlo():
    """Averaged over samples, it is E log q(z) - log p(z)."""
    w = world()
    model = model_of(w, "nonlinear")
    batch = batch_of(w)

    @eqx.filter_jit
    def draw(model, keys):
        u = model.features(batch)
        return jax.vmap(lambda key: model._unrolled(u, key))(keys), jax.vmap(lambda key: model.bound(batch, key))(keys)

    (z, mean, cov), bound = draw(model, jax.random.split(jax.random.key(0), 300))
    z, mean, cov = (np.asarray(x)[:, 0] for x in (z, mean, cov))
    ratios = []
    for s in range(len(z)):
        log_q = sum(log_normal(z[s, t], mean[s, t], cov[s, t]) for t in range(T))
        log_p = log_normal(z[s, 0], w.m1, w.Q1)
        log_p += sum(log_normal(z[s, t], w.A @ z[s, t - 1] + w.b, w.Q) for t in range(1, T))
        ratios.append(log_q - log_p)
    kl = np.asarray(bound.kl)[:, 0]
    difference = np.array(ratios) - kl
    assert abs(difference.mean()) < 4 * difference.std() / len(z) ** 0.5
    assert kl.std() < np.std(ratios)  # and it is the quieter estimate


def test_hidden_and_missing_frames_are_zeros_to_the_network():
    w = world()
    model = model_of(w, "convolutional")
    hidden = jnp.zeros((N, T), bool).at[1, 2].set(True)
    blank = np.array(w.x)
    blank[1, 2] = 0
    seen, nothing = np.ones((N, T), bool), jnp.zeros((N, T), bool)
    bound = eqx.filter_jit(lambda m, b, h: m.bound(b, jax.random.key(0), h))
    of_hidden = bound(model, batch_of(w, seen), hidden)
    of_blank = bound(model, batch_of(w._replace(x=blank), seen), nothing)
    np.testing.assert_allclose(of_hidden.kl, of_blank.kl, rtol=1e-12)
    assert float(of_hidden.reconstruction[1]) != float(of_blank.reconstruction[1])
    of_missing = bound(model, batch_of(w, ~np.asarray(hidden)), nothing)
    np.testing.assert_allclose(of_missing.kl, of_blank.kl, rtol=1e-12)


def padded(x, lengths, time) -> Sequences:
    """Sequences cut to these lengths, the rest up to `time` frames filled with what must not matter."""
    there = np.arange(time) < lengths[:, None]
    values = np.pad(x, ((0, 0), (0, time - x.shape[1]), (0, 0)))
    values = np.where(there[..., None], values, 5.0)
    return Sequences({"x": Modality(jnp.asarray(values), jnp.asarray(there))}, None, jnp.asarray(lengths))


def stirred(model) -> DKFModel:
    """The same without parameters that are zero, hence with a network that answers to frames of zeros.

    Convolutions are over a few frames only: they compile in less time.
    """
    network, first, second = model.network, *jax.random.split(jax.random.key(3))
    if isinstance(network, TimeConvolutions):
        network = TimeConvolutions(D, network.out_dim, 3, key=first, dtype=jnp.float64)
    network = jax.tree.map(lambda v: v + 0.3 * jax.random.normal(second, v.shape, v.dtype), network)
    return eqx.tree_at(lambda m: m.network, model, network)


@pytest.mark.slow
@pytest.mark.parametrize("posterior", kinds("linear"))
def test_padding_changes_neither_bound_nor_gradient(posterior):
    """With the same noise, which for the frames that exist does not depend on how many follow."""
    w = world()
    model, key = stirred(model_of(w, posterior)), jax.random.key(2)
    both = eqx.filter_jit(eqx.filter_value_and_grad(lambda m, b: ELBO()(m, b, key), has_aux=True))
    (value, info), gradient = both(model, batch_of(w))
    (same, same_info), same_gradient = both(model, padded(w.x, np.array([T] * N, np.int32), T + 3))
    np.testing.assert_allclose(same, value, rtol=1e-12)
    for name, term in info["per_sequence"].items():
        np.testing.assert_allclose(same_info["per_sequence"][name], term, rtol=1e-12)
    for a, b in zip(jax.tree.leaves(same_gradient), jax.tree.leaves(gradient), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)
    assert max(float(abs(leaf).max()) for leaf in jax.tree.leaves(gradient.network)) > 1e-3


@pytest.mark.parametrize("posterior", kinds("nonlinear", "convolutional"))
def test_latents_depend_on_nothing_but_their_own_sequence(posterior):
    """Neither on the other sequences of the batch nor on how much longer these are."""
    w = world()
    model, smooth = stirred(model_of(w, posterior)), eqx.filter_jit(lambda m, b: m.smooth(b))
    together = smooth(model, padded(w.x, np.array([T, 3, 5], np.int32), T))
    alone = smooth(model, Sequences({"x": Modality(jnp.asarray(w.x[1:2, :3]))}))
    np.testing.assert_allclose(together.mean[1, :3], alone.mean[0], atol=1e-12)
    np.testing.assert_allclose(together.cov[1, :3], alone.cov[0], atol=1e-12)


def test_convolutions_over_time_against_loops():
    network = TimeConvolutions(2, 3, 4, 1, key=jax.random.key(0), dtype=jnp.float64)
    x = np.random.default_rng(0).normal(size=(2, 5, 2))
    weight = np.asarray(network.weights[0])
    expected = np.zeros((2, 5, 3))
    for t in range(5):
        for s in range(4):
            if 0 <= t + s - 1 < 5:
                expected[:, t] += x[:, t + s - 1] @ weight[s]
    np.testing.assert_allclose(network(jnp.asarray(x)), np.maximum(expected, 0), atol=1e-12)


def test_matrices_of_the_posterior(unchecked_types):
    w = world()
    assert model_of(w, "mean-field").A_q is None
    assert model_of(w, "linear", share_transition=True).A_q is None
    model = model_of(w, "linear")
    assert model.A_q is not None
    wild = eqx.tree_at(lambda m: m.A_q, model, 3 * jnp.eye(K))
    projected = wild.project().A_q
    assert projected is not None
    assert np.linalg.norm(np.asarray(projected), 2) < 1
    with pytest.raises(ValueError, match="'mean-field', 'linear'"):
        DKF(posterior=cast(Any, "other"), verbose=False).fit(w.x)
