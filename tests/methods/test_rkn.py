"""The recurrent Kalman network: its filter against dense Kalman formulas, missing frames, and what it learns."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.methods.rkn import RKN, FactorisedState, FilteredLikelihood, RKNModel, move, update
from rpgssm.nn.emission import make_emission
from rpgssm.nn.encoders import make_encoder
from rpgssm.nn.heads import Recognition, make_head
from rpgssm.nn.masking import draw_hidden

from .small_worlds import falls_on_average, linear_r2, score_on_linear_medium, turning


def some_state(m=3, seed=0):
    rng = np.random.default_rng(seed)
    u, l = rng.normal(size=(2, m))
    var_u, var_l = rng.uniform(0.5, 2, (2, m))
    cov = rng.uniform(-0.6, 0.6, m) * np.sqrt(var_u * var_l)
    return FactorisedState(*(jnp.asarray(x) for x in (u, l, var_u, var_l, cov)))


def test_the_update_is_the_dense_kalman_update():
    """The three diagonals stay all there is, so nothing is lost."""
    state, rng = some_state(), np.random.default_rng(1)
    w, noise = rng.normal(size=3), rng.uniform(0.2, 2, 3)
    new = update(state, jnp.asarray(w / noise), jnp.asarray(1 / noise))
    m, P = np.asarray(state.mean()), np.asarray(state.dense())
    H = np.concatenate([np.eye(3), np.zeros((3, 3))], 1)
    gain = P @ H.T @ np.linalg.inv(H @ P @ H.T + np.diag(noise))
    np.testing.assert_allclose(new.mean(), m + gain @ (w - H @ m), atol=1e-12)
    np.testing.assert_allclose(new.dense(), P - gain @ H @ P, atol=1e-12)
    nothing = update(state, jnp.zeros(3), jnp.zeros(3))
    for before, after in zip(state, nothing, strict=True):
        np.testing.assert_array_equal(after, before)


def test_the_prediction_keeps_three_diagonals_of_the_dense_one():
    state, A = some_state(), np.random.default_rng(2).normal(size=(6, 6))
    noise = np.arange(1.0, 7.0)
    new = move(state, jnp.asarray(A), jnp.asarray(noise))
    P = A @ np.asarray(state.dense()) @ A.T + np.diag(noise)
    np.testing.assert_allclose(new.mean(), A @ np.asarray(state.mean()), atol=1e-12)
    np.testing.assert_allclose(new.var_u, np.diag(P)[:3], atol=1e-12)
    np.testing.assert_allclose(new.var_l, np.diag(P)[3:], atol=1e-12)
    np.testing.assert_allclose(new.cov, np.diag(P[:3, 3:]), atol=1e-12)


def make_model(mixed=4, bandwidth=0, m=2, **options):
    keys = jax.random.split(jax.random.key(0), 4)
    recognition = Recognition(
        make_encoder("linear", (3,), key=keys[0]), make_head("diagonal", True, 3, m, key=keys[1], initial_precision=2.0)
    )
    emission = make_emission("linear", 2 * m, (3,), key=keys[2], noise=0.5)
    return RKNModel({"a": recognition}, {"a": emission}, 2 * m, mixed, bandwidth, key=keys[3], **options)


def make_data():
    rng = np.random.default_rng(0)
    x, mask = rng.normal(size=(3, 6, 3)).astype(np.float32), rng.random((3, 6)) < 0.7
    return Sequences({"a": Modality(x, mask)})


def test_with_diagonal_blocks_the_filter_is_a_dense_extended_filter():
    """Without bands each pair (u_i, l_i) moves by itself, and the factorised covariance is exact."""
    model, data = make_model(), make_data()
    found = eqx.filter_jit(RKNModel.filter)(model, data)
    assert found.cov is not None
    p = model.recognition["a"](jnp.asarray(data.modalities["a"].values))
    h, lam, mask = np.asarray(p.h, float), np.asarray(p.precision.value, float), data.modalities["a"].mask
    basis = np.asarray(model.banded(), float)
    assert mask is not None
    for n in range(3):
        m, P = np.zeros(4), 10 * np.eye(4)
        for t in range(6):
            if mask[n, t]:
                precision = np.diag(np.concatenate([lam[n, t], [0, 0]]))
                V = np.linalg.inv(np.linalg.inv(P) + precision)
                m, P = V @ (np.linalg.solve(P, m) + np.concatenate([h[n, t], [0, 0]])), V
            np.testing.assert_allclose(found.mean[n, t], m, atol=2e-5)
            np.testing.assert_allclose(found.cov[n, t], P, atol=2e-5)
            logits = m @ np.asarray(model.weights.weight, float) + np.asarray(model.weights.bias, float)
            weights = np.exp(logits) / np.exp(logits).sum()
            A = np.einsum("b,bij->ij", weights, basis)
            m, P = A @ m, A @ P @ A.T + np.diag(np.asarray(model.noise, float))


def test_bands_and_even_sizes():
    basis = np.asarray(make_model(bandwidth=1, m=4).banded())[0]
    used = basis[:4, 4:] != 0
    np.testing.assert_array_equal(used, np.abs(np.subtract.outer(np.arange(4), np.arange(4))) <= 1)
    with pytest.raises(ValueError, match="two halves"):
        RKNModel({}, {}, 3, key=jax.random.key(0))


def test_a_limited_gain_keeps_the_state_in_bounds():
    """Matrices within the limit are left alone, those beyond it scaled to it; what is off the bands does not count."""
    basis = np.array(make_model(mixed=3, bandwidth=0).basis)
    basis[0] *= 0.3
    basis[1] *= 4.0
    basis[2, 0, 1] = 100.0
    large, limited = (
        eqx.tree_at(lambda m: m.basis, make_model(mixed=3, bandwidth=0, max_gain=gain), jnp.asarray(basis))
        for gain in (None, 1.0)
    )
    limited = limited.project()
    np.testing.assert_array_equal(large.project().basis, basis)  # no limit by default
    before, after = (np.linalg.norm(np.asarray(m.banded()), 2, axis=(1, 2)) for m in (large, limited))
    np.testing.assert_allclose(after, np.minimum(before, 1.0), rtol=1e-5)
    np.testing.assert_allclose(limited.basis[1], basis[1] / before[1], rtol=1e-5)
    state, weights = limited.start(2), limited.banded()
    state = state._replace(u=state.u + 3.0, l=state.l - 4.0)
    for _ in range(50):
        moved = limited.predict(state, weights)
        assert (np.linalg.norm(moved.mean(), axis=-1) <= np.linalg.norm(state.mean(), axis=-1) * (1 + 1e-5)).all()
        state = moved


def test_the_loss_covers_hidden_frames_and_nothing_that_is_missing():
    model, data, key = make_model(), make_data(), jax.random.key(5)
    a, hidden = data.modalities["a"], draw_hidden(key, data, 2, "window")
    assert a.mask is not None
    loss, info = eqx.filter_jit(FilteredLikelihood(mask_size=2))(model, data, key)
    without = Sequences({"a": Modality(a.values, a.mask & ~np.asarray(hidden))})
    mean = model.emissions["a"].mean(eqx.filter_jit(RKNModel.filter)(model, without).mean)
    squared = ((np.asarray(mean, float) - a.values) ** 2).sum(-1)
    log_p = -0.5 * squared / 0.25 - 1.5 * np.log(2 * np.pi * 0.25)
    np.testing.assert_allclose(loss, -log_p[a.mask].mean(), rtol=1e-5)
    np.testing.assert_array_equal(info["per_sequence"]["count"], a.mask.sum(1))


def padded(data, fill):
    """The same with two frames of padding, and `fill` where nothing was observed."""
    a = data.modalities["a"]
    values = np.full((3, 8, 3), fill, np.float32)
    values[:, :6] = np.where(a.mask[..., None], a.values, fill)
    return Sequences({"a": Modality(values, np.concatenate([a.mask, np.zeros((3, 2), bool)], 1))}, None, np.full(3, 6))


@pytest.mark.slow
def test_neither_missing_values_nor_padding_matter():
    model, data = make_model(bandwidth=1), make_data()
    value = eqx.filter_jit(eqx.filter_value_and_grad(lambda m, d: FilteredLikelihood()(m, d)[0]))
    (loss, gradient), (same, same_gradient) = value(model, padded(data, 0)), value(model, padded(data, 1e6))
    np.testing.assert_array_equal(same, loss)
    np.testing.assert_array_equal(same_gradient.basis, gradient.basis)
    np.testing.assert_allclose(loss, eqx.filter_jit(FilteredLikelihood())(model, data)[0], rtol=1e-6)


def test_forecasts_are_filtered_states_of_missing_frames():
    """From the last frame that exists on, in a padded sequence as in any other."""
    model, data = make_model(bandwidth=1), make_data()
    longer = padded(data, 1e6)
    gap = Sequences({"a": Modality(longer.modalities["a"].values, longer.modalities["a"].mask)})
    expected = eqx.filter_jit(RKNModel.filter)(model, gap)
    assert expected.cov is not None
    ahead = eqx.filter_jit(RKNModel.forecast)(model, longer, 2, samples=4000, key=jax.random.key(0))
    np.testing.assert_allclose(ahead.mean, expected.mean[:, 6:], atol=1e-6)
    np.testing.assert_allclose(ahead.cov, expected.cov[:, 6:], atol=1e-5)
    # trajectories: the weights of the mixture are nearly constant here, so their law is nearly that of the forecast
    drawn = np.asarray(ahead.samples)
    spread = np.sqrt(np.diagonal(np.asarray(ahead.cov), axis1=-2, axis2=-1))
    assert (np.abs(drawn.mean(0) - np.asarray(ahead.mean)) / spread).max() < 0.3
    np.testing.assert_allclose(drawn.std(0), spread, rtol=0.25)


def quick(**settings) -> RKN:
    usual = {"latent_dim": 4, "encoder": "linear", "decoder": "linear", "noise": 0.5, "mixed": 3, "batch_size": 16}
    usual |= {"validation_fraction": None, "max_steps": 20, "mask_size": 10, "verbose": False}
    return RKN(**(usual | settings))


@pytest.fixture(scope="module")
def fitted():
    x, z = turning()
    return quick(max_steps=200, learning_rate=1e-2).fit(x), x, z


@pytest.mark.slow
def test_it_learns_and_bridges_gaps(fitted):
    model, x, z = fitted
    assert falls_on_average(model.history_["loss"])
    assert linear_r2(model.transform(x), z) > 0.8
    assert np.mean((model.reconstruct(x) - x) ** 2) < 0.3 * np.var(x)
    # the second frame of a gap is better told by the dynamics than by the mean
    mask = np.ones(x.shape[:2], bool)
    mask[:, 20:22] = False
    spoiled = np.where(mask[..., None], x, np.nan)
    filled = model.reconstruct(spoiled)[:, 21]
    assert np.mean((filled - x[:, 21]) ** 2) < 0.7 * np.var(x[:, 21])
    gap, before = (np.trace(model.filter(spoiled).cov[0, t]) for t in (21, 19))
    assert gap > before


@pytest.mark.slow
def test_saving_and_errors(fitted, tmp_path):
    model, x, _ = fitted
    loaded = RKN.load(model.save(tmp_path / "model"))
    a, b = loaded.filter(x[:4]), model.filter(x[:4])
    np.testing.assert_array_equal(a.mean, b.mean)
    np.testing.assert_array_equal(a.cov, b.cov)
    ahead = loaded.forecast(x[:4], 3, samples=2)
    assert ahead.mean.shape == (4, 3, 4)
    assert ahead.samples.shape == (2, 4, 3, 4)
    assert loaded.score(x) == model.score(x)
    assert "RKN with 4 latent dimensions, 3 mixed transitions" in loaded.summary()
    with pytest.raises(ValueError, match=r"latent_dim is 3: .*even"):
        quick(latent_dim=3).fit(x)
    with pytest.raises(ValueError, match="mixed is 0"):
        quick(mixed=0).fit(x)
    for method in ("sample", "sample_posterior", "online", "transition_"):
        assert not hasattr(model, method)
    with pytest.raises(AttributeError, match="no single transition matrix"):
        _ = model.transition_


@pytest.mark.slow
@pytest.mark.usefixtures("long_run")
def test_linear_medium():
    model = RKN(latent_dim=10, max_steps=300, learning_rate=3e-3, noise=0.5, verbose=False)
    assert score_on_linear_medium(model) > 0.6
    assert falls_on_average(model.history_["loss"])
