"""The ELBO of the SVAE: exact where its potentials are the emission's, and below the likelihood elsewhere."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm.methods.svae import SVAEModel

from .linear_worlds import N, T, batch_of, emission_of, log_marginal, prior_of, true_recognition, world

SAMPLES = 2000


def exact(w) -> SVAEModel:
    return SVAEModel(prior=prior_of(w), recognition={"x": true_recognition(w)}, emissions={"x": emission_of(w)})


@eqx.filter_jit
def bounds(model, batch, hidden):
    return jax.vmap(lambda key: model.bound(batch, key, hidden))(jax.random.split(jax.random.key(0), SAMPLES))


def elbo(model, w, mask=None, hidden=None) -> tuple[np.ndarray, np.ndarray]:
    """Mean and standard error over samples, for each sequence."""
    batch = batch_of(w, np.ones((N, T), bool) if mask is None else mask)
    bound = bounds(model, batch, jnp.zeros((N, T), bool) if hidden is None else hidden)
    values = np.asarray(bound.reconstruction) - np.asarray(bound.kl)
    return values.mean(0), values.std(0) / SAMPLES**0.5


def test_with_the_true_potentials_the_bound_is_the_likelihood():
    """With a first mean and a bias in the chain: they must enter filter, smoother, sampler and divergence alike."""
    w = world()
    mean, error = elbo(exact(w), w)
    likelihood = np.array([log_marginal(w, n) for n in range(N)])
    assert (error < 0.1).all()
    assert (abs(mean - likelihood) < 4 * error).all()


def test_also_where_frames_are_missing():
    w = world()
    mask = np.random.default_rng(3).random((N, T)) < 0.6
    mean, error = elbo(exact(w), w, mask)
    likelihood = np.array([log_marginal(w, n, mask[n]) for n in range(N)])
    assert (abs(mean - likelihood) < 4 * error).all()


def test_with_other_potentials_the_bound_is_below():
    w = world()
    model = exact(w)
    likelihood = np.array([log_marginal(w, n) for n in range(N)])
    for scale in (0.5, 1.5):
        other = eqx.tree_at(lambda m: m.recognition["x"].head.to_h.weight, model, replace_fn=lambda x, s=scale: s * x)
        mean, error = elbo(other, w)
        assert (mean + 4 * error < likelihood).all()


def test_hidden_frames_give_no_potential_and_are_reconstructed():
    w = world()
    model, hidden = exact(w), jnp.zeros((N, T), bool).at[:, 2:4].set(True)
    mean, error = elbo(model, w, hidden=hidden)
    likelihood = np.array([log_marginal(w, n) for n in range(N)])
    assert (mean + 4 * error < likelihood).all()
    other = np.array(w.x)
    other[:, 2:4] += 1.0
    seen = np.ones((N, T), bool)
    before, after = (bounds(model, batch_of(v, seen), hidden) for v in (w, w._replace(x=other)))
    np.testing.assert_allclose(before.kl, after.kl, rtol=1e-12)
    assert (np.abs(np.asarray(before.reconstruction) - np.asarray(after.reconstruction)) > 1e-3).all()
