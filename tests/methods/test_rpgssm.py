"""The model as a whole: its objective, and what training may and may not move."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core import free_energy as eager_free_energy
from rpgssm.data import Modality, Sequences
from rpgssm.methods.rpgssm import FreeEnergy, RPGSSMModel
from rpgssm.nn.encoders import make_encoder
from rpgssm.nn.heads import Recognition, make_head
from rpgssm.nn.priors import make_prior
from rpgssm.training import Adam, Training, train

objective, free_energy = eqx.filter_jit(FreeEnergy()), eqx.filter_jit(eager_free_energy)


def make_model(kind="stationary", dims=(3, 2), **controls):
    keys = jax.random.split(jax.random.key(0), 5)
    recognition = {}
    for i, (name, dim) in enumerate(zip("ab", dims, strict=False)):
        shift, scale = np.full(dim, 0.5, np.float32), np.full(dim, 2, np.float32)
        encoder = make_encoder("linear", (dim,), key=keys[i], shift=shift, scale=scale)
        recognition[name] = Recognition(encoder, make_head("cholesky", False, dim, 2, key=keys[i + 2]))
    return RPGSSMModel(make_prior(kind, 2, key=keys[4], **controls), recognition)


def make_data(dims=(3, 2), masked=True, controls=None):
    rng = np.random.default_rng(0)
    modalities = {}
    for name, dim in zip("ab", dims, strict=False):
        mask = rng.random((4, 5)) < 0.7 if masked else None
        modalities[name] = Modality(rng.normal(size=(4, 5, dim)).astype(np.float32), mask)
    return Sequences(modalities, controls)


def test_the_objective_is_the_free_energy_of_its_potentials():
    model, data = make_model(), make_data()
    loss, info = objective(model, data)
    potentials = tuple(
        model.recognition[name](jnp.asarray(data.modalities[name].values), jnp.asarray(data.modalities[name].mask))
        for name in ("a", "b")
    )
    expected, terms = free_energy(model.prior.chain(5), potentials)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    observed = sum(m.mask.sum() for m in data.modalities.values())
    np.testing.assert_allclose(loss, -np.asarray(terms.free_energy).sum() / observed, rtol=1e-5)
    np.testing.assert_allclose(info["per_sequence"]["free_energy"], terms.free_energy, rtol=1e-6)
    np.testing.assert_allclose(info["log_z"], np.asarray(terms.log_z).sum() / observed, rtol=1e-5)


def test_controls_reach_the_chain_and_the_reference_stays_standard_normal():
    model = make_model("controlled", control_dim=1)
    model = eqx.tree_at(lambda m: m.prior.B, model, jnp.ones((2, 1), jnp.float32))
    u = np.random.default_rng(1).normal(size=(4, 5, 1)).astype(np.float32)
    data = make_data(masked=False, controls=u)
    expected, _ = free_energy(model.prior.chain(5, u), model.potentials(data), reference=model.prior.reference())
    np.testing.assert_allclose(objective(model, data)[0], expected, rtol=1e-6)
    other = objective(model, make_data(masked=False, controls=-u))[0]
    assert abs(float(other - expected)) > 1e-4


def test_other_modalities_are_refused():
    with pytest.raises(ValueError, match="do not have the same modalities: b"):
        make_model().potentials(make_data(dims=(3,)))


def test_training_moves_everything_but_the_standardisation_and_keeps_the_chain_stable():
    model, data = make_model(), make_data()
    settings = Training(max_steps=8, batch_size=4, learning_rate=0.3)
    trained = train(model, FreeEnergy(), data, settings, project=RPGSSMModel.project, progress=False).last_model
    for name in ("a", "b"):
        before, after = model.recognition[name], trained.recognition[name]
        np.testing.assert_array_equal(after.encoder.standardise.shift, before.encoder.standardise.shift)
        np.testing.assert_array_equal(after.encoder.standardise.scale, before.encoder.standardise.scale)
        assert np.abs(np.asarray(after.head.to_h.weight) - np.asarray(before.head.to_h.weight)).max() > 0.1
    assert not np.allclose(trained.prior.A, model.prior.A)
    assert np.linalg.norm(trained.prior.A, 2) < 1


def test_projection_clips_singular_values_only():
    model = eqx.tree_at(lambda m: m.prior.A, make_model(), jnp.diag(jnp.asarray([3.0, 0.4], jnp.float32)))
    projected = model.project()
    np.testing.assert_allclose(projected.prior.A, np.diag([0.999, 0.4]), atol=1e-5)
    assert eqx.tree_equal(projected.recognition, model.recognition)


def test_the_rate_of_the_prior_is_for_the_prior_alone():
    """Also where a modality is called so, and never for the standardisation."""
    model = make_model()
    model = RPGSSMModel(model.prior, {"prior": model.recognition["a"]})
    data = Sequences({"prior": make_data().modalities["a"]})
    settings = Training(max_steps=3, batch_size=4, learning_rate=0.1, optimizer=Adam(prior_rate=0.0))
    trained = train(model, FreeEnergy(), data, settings, progress=False).last_model
    np.testing.assert_array_equal(trained.prior.A, model.prior.A)
    before, after = model.recognition["prior"], trained.recognition["prior"]
    assert eqx.tree_equal(after.encoder.standardise, before.encoder.standardise)
    for leaf, old in zip(jax.tree.leaves(after.head), jax.tree.leaves(before.head), strict=True):
        assert (leaf != old).any()
