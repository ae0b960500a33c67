"""The Kalman variational autoencoder: the density of codes, missing frames, forecasts, and the phases of training."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.methods.kvae import CODE_NOISE, FIRST_VARIANCE, STATE_NOISE, KVAEModel
from rpgssm.nn.emission import make_emission
from rpgssm.nn.encoders import LinearEncoder

from .linear_worlds import dense_kl, joint, log_normal

N, T, K, CODE, D = 2, 5, 3, 2, 4
STEPS = 3


@pytest.fixture(scope="module")
def model():
    keys = jax.random.split(jax.random.key(0), 5)
    encoders = {"x": LinearEncoder((D,), dtype=jnp.float64)}
    emissions = {"x": make_emission("linear", CODE, (D,), key=keys[0], noise=0.5, dtype=jnp.float64)}
    made = KVAEModel(encoders, emissions, K, CODE, weight=0.3, warmup_steps=2, key=keys[1], dtype=jnp.float64)
    # matrices that differ, and weights that change with the codes
    A = made.A + 0.2 * jax.random.normal(keys[2], made.A.shape, jnp.float64)
    C = jax.random.normal(keys[3], made.C.shape, jnp.float64)
    return eqx.tree_at(lambda m: (m.A, m.C, m.mixture[1].weight), made, (A, C, 5 * made.mixture[1].weight))


@pytest.fixture(scope="module")
def x():
    return np.random.default_rng(0).normal(size=(N, T, D))


def batch_of(x, mask=None) -> Sequences:
    return Sequences({"x": Modality(jnp.asarray(x), None if mask is None else jnp.asarray(mask))})


def affine(emission):
    """Weight and bias of a linear decoder."""
    layer = emission.decoder.layers.layers[0]
    return layer.weight, layer.bias


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def by_hand(model, a, seen):
    """A textbook filter along with the recurrent network, one sequence: weights, A_t, C_t, filtered moments, log p."""
    lstm, dense = model.mixture
    W, b, U = (np.asarray(v) for v in (lstm.inputs.weight, lstm.inputs.bias, lstm.recurrent))
    h = c = np.zeros(len(U))
    m, P, total, out = np.zeros(K), FIRST_VARIANCE * np.eye(K), 0.0, []
    for t in range(len(a)):
        logits = h @ np.asarray(dense.weight) + np.asarray(dense.bias)
        α = np.exp(logits - logits.max()) / np.exp(logits - logits.max()).sum()
        A, C = (np.einsum("m,mij->ij", α, np.asarray(v)) for v in (model.A, model.C))
        if t > 0:
            m, P = A @ m, A @ P @ A.T + STATE_NOISE * np.eye(K)
        code = C @ m
        if seen[t]:
            S = C @ P @ C.T + CODE_NOISE * np.eye(CODE)
            total += log_normal(a[t], C @ m, S)
            gain = P @ C.T @ np.linalg.inv(S)
            m, P, code = m + gain @ (a[t] - C @ m), P - gain @ C @ P, a[t]
        out.append((α, A, C, m, P))
        i, f, o, g = np.split(code @ W + b + h @ U, 4)
        c = sigmoid(f + 1) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
    return [np.stack(v) for v in zip(*out, strict=True)], total


def smoothed_codes(A, C, a, seen):
    """C_t E z_t of one sequence, by the dense joint Gaussian of its latents."""
    mean, cov = joint(np.zeros(K), FIRST_VARIANCE * np.eye(K), A[1:], np.zeros((T, K)), [STATE_NOISE * np.eye(K)] * T)
    Λ, h = np.zeros((T * K, T * K)), np.zeros(T * K)
    for t in np.flatnonzero(seen):
        place = slice(t * K, t * K + K)
        Λ[place, place], h[place] = C[t].T @ C[t] / CODE_NOISE, C[t].T @ a[t] / CODE_NOISE
    z = np.linalg.solve(np.linalg.inv(cov) + Λ, h + np.linalg.solve(cov, mean)).reshape(T, K)
    return np.einsum("tak,tk->ta", C, z)


@pytest.mark.parametrize("missing", [pytest.param(False, marks=pytest.mark.slow), True])
def test_filter_and_density_of_codes(model, x, missing):
    seen = np.ones((N, T), bool)
    if missing:
        seen[0, 1:3] = seen[1, 0] = False
    batch = batch_of(x, seen if missing else None)

    @eqx.filter_jit
    def run(model, batch):
        codes = model.codes(batch)
        return codes.mean, model.mixing(codes.mean, codes.seen), model.filter(batch)

    a, weights, filtered = run(model, batch)
    for n in range(N):
        (α, _, _, mean, cov), total = by_hand(model, np.asarray(a[n]), seen[n])
        np.testing.assert_allclose(weights[n], α, rtol=1e-7)
        np.testing.assert_allclose(filtered.mean[n], mean, atol=1e-7)
        np.testing.assert_allclose(filtered.cov[n], cov, atol=1e-7)
        codes = np.asarray(a[n])[seen[n]]
        rest = -0.5 * np.sum(codes**2 / CODE_NOISE + np.log(2 * np.pi * CODE_NOISE))
        assert float(filtered.log_z[n]) + rest == pytest.approx(total, rel=1e-8)


@pytest.mark.slow
def test_the_bound_is_that_of_the_sampled_codes(model, x):
    key, mask = jax.random.key(3), np.ones((N, T), bool)
    mask[1, 3] = False
    batch = batch_of(x, mask)
    hidden = jnp.zeros((N, T), bool).at[0, 2].set(True)
    codes, bound, frames_of_means = eqx.filter_jit(
        lambda m: (m.codes(batch), m.bound(batch, key, hidden), m.reconstruct(batch)["x"])
    )(model)
    assert (np.asarray(codes.variance) < 0.03).all()
    noise = np.asarray(jax.random.normal(key, (N, T, CODE), jnp.float64))
    a = np.asarray(codes.mean) + np.sqrt(np.asarray(codes.variance)) * noise
    seen = mask & ~np.asarray(hidden)
    for n in range(N):
        (_, A, C, _, _), log_p = by_hand(model, a[n], seen[n])
        pairs = zip(a[n][seen[n]], codes.mean[n][seen[n]], codes.variance[n][seen[n]], strict=True)
        log_q = sum(log_normal(code, np.asarray(m), np.diag(np.asarray(v))) for code, m, v in pairs)
        assert float(bound.kl[n]) == pytest.approx(log_q - log_p, rel=1e-7)
        decoded = np.where(seen[n][:, None], a[n], smoothed_codes(A, C, a[n], seen[n]))
        frames = np.asarray(model.emissions["x"].mean(jnp.asarray(decoded)))
        total = sum(log_normal(x[n, t], frames[t], 0.25 * np.eye(D)) for t in range(T) if mask[n, t])
        assert float(bound.reconstruction[n]) == pytest.approx(0.3 * total, rel=1e-6)
        # what is reconstructed: frames of the codes that the smoothed latents stand for, here of the codes' means
        (_, A, C, _, _), _ = by_hand(model, np.asarray(codes.mean[n]), mask[n])
        expected = smoothed_codes(A, C, np.asarray(codes.mean[n]), mask[n])
        np.testing.assert_allclose(frames_of_means[n], model.emissions["x"].mean(jnp.asarray(expected)), rtol=1e-6)


@pytest.mark.parametrize("missing", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_bound_is_below_the_likelihood(model, missing):
    """With matrices that are all alike (z, a, x) are jointly Gaussian, and the gap is the divergence of q."""
    rng = np.random.default_rng(1)
    A, C = 0.9 * np.linalg.qr(rng.normal(size=(K, K)))[0], rng.normal(size=(CODE, K))
    W, d = 3 * rng.normal(size=(CODE, D)), rng.normal(size=D)
    # codes near those that the frames stand for, with variances that differ
    to_code = np.concatenate([np.linalg.pinv(W), 0.02 * rng.normal(size=(D, CODE))], 1)
    bias = np.concatenate([-d @ np.linalg.pinv(W), -np.ones(CODE)])
    alike = eqx.tree_at(
        lambda m: (m.A, m.C, m.to_code.weight, m.to_code.bias, *affine(m.emissions["x"])),
        model,
        [jnp.asarray(v) for v in (np.stack([A] * 3), np.stack([C] * 3), to_code, bias, W, d)],
    )
    mean, cov = joint(
        np.zeros(K), FIRST_VARIANCE * np.eye(K), [A] * (T - 1), np.zeros((T, K)), [STATE_NOISE * np.eye(K)] * T
    )
    z = rng.multivariate_normal(mean, cov, N).reshape(N, T, K)
    a = z @ C.T + CODE_NOISE**0.5 * rng.normal(size=(N, T, CODE))
    x = a @ W + d + 0.5 * rng.normal(size=(N, T, D))
    samples, mask = 1000, np.ones((N, T), bool)
    mask[1, 3] = not missing
    batch = batch_of(x, mask if missing else None)

    @eqx.filter_jit
    def run(model):
        keys = jax.random.split(jax.random.key(0), samples)
        return model.codes(batch), jax.vmap(lambda key: model.bound(batch, key, weight=1.0))(keys)

    codes, bound = run(alike)
    values = np.asarray(bound.reconstruction) - np.asarray(bound.kl)
    average, error = values.mean(0), values.std(0) / samples**0.5
    assert (error < 0.1).all()
    for n in range(N):
        seen = np.flatnonzero(mask[n])
        emit, decode = np.kron(np.eye(T)[seen], C), np.kron(np.eye(len(seen)), W.T)
        cov_a = emit @ cov @ emit.T + CODE_NOISE * np.eye(len(seen) * CODE)
        cov_x = decode @ cov_a @ decode.T + 0.25 * np.eye(len(seen) * D)
        apart = (x[n, seen] - d).reshape(-1)
        likelihood = log_normal(apart, np.zeros(len(apart)), cov_x)
        gain = cov_a @ decode.T @ np.linalg.inv(cov_x)
        exact = gain @ apart, cov_a - gain @ decode @ cov_a
        q = np.asarray(codes.mean)[n, seen].reshape(-1), np.diag(np.asarray(codes.variance)[n, seen].reshape(-1))
        assert average[n] + 4 * error[n] < likelihood
        assert abs(average[n] - (likelihood - dense_kl(q, exact))) < 4 * error[n]


@pytest.mark.slow
def test_a_forecast_goes_on_without_frames(model, x):
    a, out = eqx.filter_jit(lambda m: (m.codes(batch_of(x)).mean, m.forecast(batch_of(x), STEPS)))(model)
    for n in range(N):
        codes = np.concatenate([np.asarray(a[n]), np.zeros((STEPS, CODE))])
        (_, _, _, mean, cov), _ = by_hand(model, codes, np.arange(T + STEPS) < T)
        np.testing.assert_allclose(out.mean[n], mean[T:], atol=1e-7)
        np.testing.assert_allclose(out.cov[n], cov[T:], atol=1e-7)


@pytest.mark.slow
def test_the_weights_learn_only_after_the_first_phase(model, x):
    @eqx.filter_jit
    def gradient(model):
        def loss(model):
            bound = model.bound(batch_of(x), jax.random.key(0))
            return jnp.sum(bound.kl - bound.reconstruction)

        return eqx.filter_grad(loss)(model)

    for done in range(3):
        g = gradient(model)
        sizes = [float(jnp.abs(v).max()) for v in jax.tree.leaves(g.mixture)]
        assert (max(sizes) == 0) == (done < 2)
        assert float(jnp.abs(g.A).max()) > 0
        model = model.project()
