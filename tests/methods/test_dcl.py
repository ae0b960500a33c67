"""Contrastive learning with dynamics: its loss against a loop, switching, gaps, and what the estimator gives."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.methods.dcl import DCL, DCLModel, InfoNCEOfSuccessors, _predict
from rpgssm.nn.encoders import make_encoder

from .small_worlds import falls_on_average, linear_r2, rotation, score_on_linear_medium, turning

loss_of = eqx.filter_jit(InfoNCEOfSuccessors())


def make_model(modes=1):
    encoders = {"a": make_encoder("linear", (3,), key=jax.random.key(0))}
    model = DCLModel(encoders, 2, modes, spread=0.5, key=jax.random.key(1))
    return model if modes > 1 else eqx.tree_at(lambda m: m.A, model, jnp.asarray(rotation(0.5), jnp.float32)[None])


def make_data():
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(3, 6, 3)).astype(np.float32), rng.random((3, 6)) < 0.8
    return Sequences({"a": Modality(x, mask)})


def embedded(model, data):
    dense = model.embedding.dense["a"]
    return np.asarray(data.modalities["a"].values, float) @ np.asarray(dense.weight, float) + np.asarray(dense.bias)


def naive(model, data, choose=None):
    """Every pair of neighbours against all frames seen, one at a time; `choose` are the frames to compare with."""
    y, seen, A = embedded(model, data), data.modalities["a"].mask, np.asarray(model.A, float)
    frames = [(n, t) for n in range(3) for t in range(6)]
    terms = []
    for n in range(3):
        for t in range(5):
            if not (seen[n, t] and seen[n, t + 1]):
                continue
            each = [a @ y[n, t] for a in A]
            fit = np.array([-np.sum((p - y[n, t + 1]) ** 2) for p in each])
            weights = np.exp(fit) / np.exp(fit).sum()
            predicted = sum(w * p for w, p in zip(weights, each, strict=True))
            others = frames if choose is None else [frames[i] for i in choose if frames[i] != (n, t + 1)]
            scores = [-np.sum((predicted - y[f]) ** 2) for f in others if seen[f]]
            own = -np.sum((predicted - y[n, t + 1]) ** 2)
            total = np.sum(np.exp(scores)) + (0 if choose is None else np.exp(own))
            terms.append(np.log(total) - own)
    return np.mean(terms), len(terms)


@pytest.mark.parametrize("modes", [1, 3])
def test_the_loss_against_a_loop(modes):
    model, data = make_model(modes), make_data()
    loss, info = loss_of(model, data)
    expected, count = naive(model, data)
    np.testing.assert_allclose(loss, expected, rtol=1e-4)
    assert info["per_sequence"]["count"].sum() == count


def test_fewer_negatives_against_a_loop():
    model, data = make_model(), make_data()
    expected, _ = naive(model, data, choose=[0, 3, 7, 10, 14])  # 5 of 18, evenly spaced
    few, many = (eqx.filter_jit(InfoNCEOfSuccessors(negatives=count)) for count in (5, 99))
    np.testing.assert_allclose(few(model, data)[0], expected, rtol=1e-4)
    np.testing.assert_allclose(many(model, data)[0], naive(model, data)[0], rtol=1e-4)


def test_matrices_are_drawn_by_how_well_they_predict():
    """At a low temperature it is one matrix alone, with probabilities that the temperature does not change."""
    model, draws, rng = make_model(3), 4000, np.random.default_rng(0)
    y, following = rng.normal(size=(2, 1, 1, 2)).astype(np.float32)
    now, then = (jnp.asarray(np.broadcast_to(v, (1, draws, 2))) for v in (y, following))
    predicted = np.asarray(_predict(model, now, then, 1e-4, jax.random.key(0))[0])
    each = np.asarray(model.each_prediction(jnp.asarray(y[0, 0])))
    apart = np.abs(predicted[:, None] - each[None]).max(-1)
    assert np.mean(apart.min(1) < 1e-3) > 0.99
    fit = -np.sum((each - following[0, 0]) ** 2, -1)
    expected = np.exp(fit) / np.exp(fit).sum()
    assert expected.max() < 0.9
    found = np.bincount(apart.argmin(1), minlength=3) / draws
    np.testing.assert_allclose(found, expected, atol=4 * 0.5 / draws**0.5)


def test_matrices_start_at_the_identity():
    encoders = {"a": make_encoder("linear", (3,), key=jax.random.key(0))}
    np.testing.assert_array_equal(DCLModel(encoders, 4, key=jax.random.key(1)).A, np.eye(4)[None])
    several = DCLModel(encoders, 4, 3, key=jax.random.key(1)).A
    assert 0 < np.abs(np.asarray(several) - np.eye(4)).max() < 0.3


def test_neither_missing_values_nor_padding_matter():
    model, data = make_model(2), make_data()
    a = data.modalities["a"]
    assert a.mask is not None
    padded = np.full((3, 8, 3), np.nan, np.float32)
    padded[:, :6] = np.where(a.mask[..., None], a.values, np.nan)
    longer = Sequences(
        {"a": Modality(padded, np.concatenate([a.mask, np.zeros((3, 2), bool)], 1))}, None, np.full(3, 6)
    )
    clean = Sequences({"a": Modality(np.nan_to_num(padded), longer.modalities["a"].mask)}, None, np.full(3, 6))
    value = eqx.filter_jit(eqx.filter_value_and_grad(lambda m, d: InfoNCEOfSuccessors()(m, d)[0]))
    (loss, gradient), (same, same_gradient) = value(model, clean), value(model, longer)
    np.testing.assert_array_equal(same, loss)
    np.testing.assert_array_equal(same_gradient.A, gradient.A)
    np.testing.assert_allclose(loss, loss_of(model, data)[0], rtol=1e-5)
    look = eqx.filter_jit(lambda m, d: (m.filter(d).mean, m.forecast(d, 3).mean))
    (found, ahead), (before, expected) = look(model, longer), look(model, data)
    np.testing.assert_allclose(found[:, :6], before, atol=1e-6)
    np.testing.assert_allclose(ahead, expected, atol=1e-6)


def test_gaps_are_filled_and_forecasts_follow_the_matrix():
    model = make_model()
    x = np.random.default_rng(1).normal(size=(1, 5, 3)).astype(np.float32)
    mask = np.array([[False, True, False, False, True]])
    data = Sequences({"a": Modality(x, mask)})
    found, y, A = np.asarray(model.filter(data).mean[0]), embedded(model, data)[0], np.asarray(model.A[0])
    np.testing.assert_allclose(found[[1, 4]], y[[1, 4]], atol=1e-6)
    np.testing.assert_allclose(found[[0, 2, 3]], [[0, 0], A @ y[1], A @ A @ y[1]], atol=1e-6)
    np.testing.assert_allclose(model.forecast(data, 2).mean[0], [A @ y[4], A @ A @ y[4]], atol=1e-6)


def quick(**settings) -> DCL:
    usual = {"latent_dim": 2, "encoder": "linear", "batch_size": 16, "validation_fraction": None, "max_steps": 20}
    return DCL(**(usual | {"verbose": False, "negatives": 128} | settings))


@pytest.fixture(scope="module")
def fitted():
    x, z = turning()
    return quick(max_steps=250, learning_rate=1e-2).fit(x), x, z


def test_it_learns(fitted):
    model, x, z = fitted
    assert falls_on_average(model.history_["loss"])
    latents = model.transform(x)
    assert linear_r2(latents, z) > 0.85
    readout = np.linalg.lstsq(latents[:, :-1].reshape(-1, 2), z[:, :-1].reshape(-1, 2), rcond=None)[0]
    ahead = model.forecast(x[:, :30], 1)
    assert ahead.cov is None
    error = np.mean((ahead.mean[:, 0] @ readout - z[:, 30]) ** 2)
    assert error < 0.4
    assert model.score(x) > -np.log(129) + 1  # one of 129 frames by chance


@pytest.mark.slow
def test_a_stationary_chain_is_taken_for_its_inverse_transpose():
    """As derived in the module: the same frequency, and growth where there is decay."""
    x, _ = turning(n=200, noise=0.0, scale=0.8)
    model = quick(max_steps=1500, learning_rate=1e-2, negatives=None, batch_size=32).fit(x[:, :20])
    eigenvalues = np.linalg.eigvals(model.transition_)
    np.testing.assert_allclose(np.abs(np.angle(eigenvalues)), 0.4, atol=0.05)
    np.testing.assert_allclose(np.abs(eigenvalues), 1 / 0.8, rtol=0.08)


def switching(n=64, t=40, seed=0) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Points on a circle that turn one way or the other, with rare changes: observations, latents, modes."""
    rng = np.random.default_rng(seed)
    turns = rotation(0.5), rotation(-0.9)
    C = np.random.default_rng(7).normal(size=(6, 2))
    z, modes = np.zeros((n, t, 2)), np.zeros((n, t), int)
    modes[:, 0] = rng.integers(2, size=n)
    angle = rng.uniform(0, 2 * np.pi, n)
    z[:, 0] = np.stack([np.cos(angle), np.sin(angle)], -1)
    for i in range(1, t):
        modes[:, i] = np.where(rng.random(n) < 0.1, 1 - modes[:, i - 1], modes[:, i - 1])
        for m in (0, 1):
            rows = modes[:, i - 1] == m
            z[rows, i] = z[rows, i - 1] @ turns[m].T
        z[:, i] += 0.03 * rng.normal(size=(n, 2))
    return (z @ C.T + 0.05 * rng.normal(size=(n, t, 6))).astype(np.float32), z, modes


@pytest.mark.slow
def test_switching_dynamics_are_told_apart():
    x, z, modes = switching()
    model = quick(modes=2, max_steps=300, learning_rate=1e-2).fit(x)
    found = model.infer_modes(x)[:, :-1]
    agree = np.mean(found == modes[:, :-1])
    assert max(agree, 1 - agree) > 0.9
    assert linear_r2(model.transform(x), z) > 0.9
    with pytest.raises(AttributeError, match="several matrices"):
        _ = model.transition_
    angles = sorted(np.abs(np.angle(np.linalg.eigvals(A))).max() for A in model.transitions_)
    np.testing.assert_allclose(angles, [0.5, 0.9], atol=0.15)


def test_saving_and_errors(fitted, tmp_path):
    model, x, _ = fitted
    loaded = DCL.load(model.save(tmp_path / "model"))
    np.testing.assert_array_equal(loaded.forecast(x, 3).mean, model.forecast(x, 3).mean)
    assert loaded.summary() == model.summary()
    assert "linear dynamics" in loaded.summary()
    with pytest.raises(ValueError, match="no noise"):
        model.forecast(x, 3, samples=2)
    with pytest.raises(ValueError, match="steps is 0"):
        model.forecast(x, 0)
    for wrong in ({"modes": 0}, {"temperature": -1.0}, {"negatives": 0}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            quick(**wrong).fit(x)
    for method in ("sample", "sample_posterior", "online"):
        assert not hasattr(model, method)


@pytest.mark.slow
@pytest.mark.usefixtures("long_run")
@pytest.mark.parametrize("negatives", [None, 512])
def test_linear_medium(negatives):
    steps = 100 if negatives is None else 300
    model = DCL(latent_dim=5, max_steps=steps, learning_rate=3e-3, negatives=negatives, verbose=False)
    assert score_on_linear_medium(model) > 0.6
    assert falls_on_average(model.history_["loss"])
