"""Contrastive predictive coding: its loss against a loop, what masks may not change, and what the estimator gives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.methods.cpc import CPC, CPCModel, InfoNCE
from rpgssm.nn.encoders import make_encoder
from rpgssm.nn.masking import draw_hidden

from .small_worlds import falls_on_average, linear_r2, score_on_linear_medium, turning

loss_of = eqx.filter_jit(InfoNCE())


def make_model(horizons=6, dim=3):
    encoders = {"a": make_encoder("linear", (dim,), key=jax.random.key(0))}
    return CPCModel(encoders, 2, 4, horizons, key=jax.random.key(1))


def make_data(masked=True):
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(4, 5, 3)).astype(np.float32), rng.random((4, 5)) < 0.7
    return Sequences({"a": Modality(x, mask if masked else None)})


def naive(model, data, hidden=None):
    """Every context against every frame after it, one at a time."""
    x = np.asarray(data.modalities["a"].values, float)
    mask = data.modalities["a"].mask
    seen = np.ones(x.shape[:2], bool) if mask is None else np.asarray(mask)
    dense = model.embedding.dense["a"]
    e = np.where(seen[..., None], x, 0) @ np.asarray(dense.weight, float) + np.asarray(dense.bias, float)
    shown = e.copy()
    if hidden is not None:
        shown[np.asarray(hidden)] = np.asarray(dense.bias, float)  # what becomes of a frame of zeros
    c = np.asarray(model.recurrent(jnp.asarray(shown, jnp.float32)), float)
    terms = []
    for n in range(4):
        for t in range(5):
            for k in range(1, 1 + len(model.W)):
                if t + k < 5 and seen[n, t + k]:
                    W = np.asarray(model.W[k - 1], float)
                    scores = [e[m, t + k] @ W @ c[n, t] for m in range(4) if seen[m, t + k]]
                    terms.append(np.log(np.sum(np.exp(scores))) - e[n, t + k] @ W @ c[n, t])
    return np.mean(terms), len(terms)


@pytest.mark.parametrize("masked", [False, True])
def test_the_loss_against_a_loop(masked):
    model, data = make_model(), make_data(masked)  # more horizons than there are frames ahead
    loss, info = loss_of(model, data)
    expected, count = naive(model, data)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert info["per_sequence"]["count"].sum() == count
    np.testing.assert_allclose(info["per_sequence"]["log_score"].sum(), -expected * count, rtol=1e-5)
    assert 0 <= info["accuracy"] <= 1


def test_hidden_frames_are_zeros_for_the_context_and_still_counted():
    model, data, key = make_model(), make_data(), jax.random.key(3)
    hidden = draw_hidden(key, data, 2, "window")
    expected, count = naive(model, data, hidden)
    loss, info = eqx.filter_jit(InfoNCE(mask_size=2))(model, data, key)
    np.testing.assert_allclose(loss, expected, rtol=1e-5)
    assert info["per_sequence"]["count"].sum() == count
    assert abs(expected - naive(model, data)[0]) > 1e-4


def test_neither_missing_values_nor_padding_matter():
    model, data = make_model(), make_data()
    a = data.modalities["a"]
    assert a.mask is not None
    spoiled = np.where(a.mask[..., None], a.values, np.float32(np.nan))
    padded = np.concatenate([spoiled, np.full((4, 3, 3), np.nan, np.float32)], 1)
    mask = np.concatenate([a.mask, np.zeros((4, 3), bool)], 1)
    longer = Sequences({"a": Modality(padded, mask)}, None, np.full(4, 5))
    clean = Sequences({"a": Modality(np.nan_to_num(padded), mask)}, None, np.full(4, 5))
    value = eqx.filter_jit(eqx.filter_value_and_grad(lambda m, d: InfoNCE()(m, d)[0]))
    (loss, gradient), (same, same_gradient) = value(model, clean), value(model, longer)
    np.testing.assert_array_equal(same, loss)
    for x, y in zip(jax.tree.leaves(gradient), jax.tree.leaves(same_gradient), strict=True):
        np.testing.assert_array_equal(y, x)
    np.testing.assert_allclose(loss, loss_of(model, data)[0], rtol=1e-6)
    np.testing.assert_allclose(model.filter(longer).mean[:, :5], model.filter(data).mean, atol=1e-6)


def quick(**settings) -> CPC:
    usual = {"latent_dim": 3, "encoder": "linear", "horizons": 4, "batch_size": 16, "validation_fraction": None}
    return CPC(**(usual | {"mask_size": 0, "max_steps": 20, "verbose": False, "embedding_dim": 8} | settings))


@pytest.fixture(scope="module")
def fitted():
    x, z = turning()
    return quick(max_steps=250, learning_rate=1e-2).fit(x), x, z


def test_it_learns_and_is_causal(fitted):
    model, x, z = fitted
    assert falls_on_average(model.history_["loss"])
    assert linear_r2(model.transform(x), z) > 0.7
    np.testing.assert_allclose(model.transform(x[:, :20]), model.transform(x)[:, :20], atol=1e-5)
    latents = model.filter(x)
    np.testing.assert_array_equal(latents.mean, model.smooth(x).mean)
    assert latents.cov is None
    assert model.score(x) > -np.log(16) + 0.3  # one of 16 sequences by chance


def test_what_there_is_not(fitted):
    model, x, _ = fitted
    for method in ("forecast", "sample", "sample_posterior", "online", "transition_"):
        assert not hasattr(model, method)
    with pytest.raises(AttributeError, match="this CPC has no single transition matrix"):
        _ = model.transition_
    with pytest.raises(ValueError, match="no use for controls"):
        quick().fit(x, controls=np.zeros((64, 40, 1)))
    with pytest.raises(ValueError, match="horizons is 0"):
        quick(horizons=0).fit(x)


def test_saving(fitted, tmp_path):
    model, x, _ = fitted
    loaded = CPC.load(model.save(tmp_path / "plain"))
    np.testing.assert_array_equal(loaded.transform(x), model.transform(x))
    assert loaded.summary() == model.summary()
    assert "CPC with 3 latent dimensions, 4 horizons" in model.summary()


@pytest.mark.slow
def test_decoding(fitted, tmp_path):
    model, x, _ = fitted
    model = CPC.load(model.save(tmp_path / "plain"))  # a copy to add decoders to
    model.fit_decoder(x[:, :20], steps=150, learning_rate=1e-2)
    assert np.mean((model.reconstruct(x) - x) ** 2) < 0.6 * np.var(x)
    loaded = CPC.load(model.save(tmp_path / "decoders"))
    np.testing.assert_array_equal(loaded.reconstruct(x[:3]), model.reconstruct(x[:3]))


@pytest.mark.slow
def test_ragged_sequences_two_modalities_and_masking():
    x, z = turning()
    lengths = np.random.default_rng(0).integers(15, 41, 64)
    rows = [{"left": y[:n, :3], "right": y[:n, 3:]} for y, n in zip(x, lengths, strict=True)]
    both = {name: [row[name] for row in rows] for name in ("left", "right")}
    latents = quick(max_steps=400, learning_rate=1e-2, mask_size=5).fit_transform(both)
    assert [len(y) for y in latents] == list(lengths)
    assert linear_r2(latents, [y[:n] for y, n in zip(z, lengths, strict=True)]) > 0.6


@pytest.mark.slow
@pytest.mark.usefixtures("long_run")
@pytest.mark.parametrize("mask_size", [0, 20])
def test_linear_medium(mask_size):
    model = CPC(latent_dim=5, max_steps=300, learning_rate=3e-3, mask_size=mask_size, verbose=False)
    assert score_on_linear_medium(model) > 0.6
    assert falls_on_average(model.history_["loss"])
