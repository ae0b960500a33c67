"""Optimizers against optax used in the ordinary way, schedules against formulas."""

import math
from dataclasses import replace

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from jaxtyping import Array, Float

from rpgssm.model import Fixed
from rpgssm.settings import kinds
from rpgssm.training import SGD, Adam, Optimizer
from rpgssm.training.optimizer import Updater

from .toys import line

RATE = 0.1
ORDINARY = {
    "Adam": (Adam(), optax.adam(RATE)),
    "AdamW": (Adam(weight_decay=0.1), optax.adamw(RATE, weight_decay=0.1)),
    "SGD": (SGD(momentum=0.9), optax.sgd(RATE, momentum=0.9)),
    "Adam, other memories": (Adam(beta1=0.5, beta2=0.9), optax.adam(RATE, b1=0.5, b2=0.9)),
}


def plain(optimizer: Optimizer) -> Optimizer:
    return replace(optimizer, schedule="constant", clip_norm=None)


def updater(optimizer, params, rate=RATE, max_steps=3000) -> Updater:
    return Updater(optimizer, rate, max_steps, params)


def parameters(dtype=jnp.float64):
    return eqx.filter(line(0, dtype), eqx.is_inexact_array)


def gradients(dtype=jnp.float64, like=None):
    rng = np.random.default_rng(0)
    like = parameters(dtype) if like is None else like
    return [jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), dtype), like) for _ in range(3)]


def follow(updater, params, grads):
    state = updater.init(params)
    for step, gradient in enumerate(grads):
        params, state, *_ = updater.update(gradient, state, params, jnp.int32(step))
    return params


@pytest.mark.parametrize(("name", "dtype"), [("Adam", jnp.float32), *((name, jnp.float64) for name in ORDINARY)])
def test_as_in_optax(name, dtype, lenient_promotion):
    ours, ordinary = ORDINARY[name]
    found = follow(updater(plain(ours), parameters(dtype)), parameters(dtype), gradients(dtype))
    params = parameters(dtype)
    state = ordinary.init(params)
    for gradient in gradients(dtype):
        updates, state = ordinary.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    assert found.weight.dtype == dtype
    tolerance = 1e-4 if dtype == jnp.float32 else 1e-7
    np.testing.assert_allclose(found.weight, params.weight, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.prior, params.prior, rtol=tolerance, atol=tolerance)


def test_every_optimizer_is_compared():
    assert {type(ours).__name__ for ours, _ in ORDINARY.values()} == set(kinds(Optimizer))


def test_separate_rates():
    (gradient,) = gradients()[:1]
    after = follow(updater(plain(SGD(prior_rate=0.01)), parameters()), parameters(), [gradient])
    np.testing.assert_allclose(after.weight, parameters().weight - 0.1 * gradient.weight)
    np.testing.assert_allclose(after.prior, parameters().prior - 0.01 * gradient.prior)


def test_a_rate_of_the_prior_needs_one_of_the_networks():
    with pytest.raises(ValueError, match="prior_rate needs a learning_rate above 0"):
        updater(Adam(prior_rate=0.01), parameters(), rate=0.0)


class FixedWeight(Fixed):
    weight: Float[Array, " d"]


class PartlyFixed(eqx.Module):
    """As a line, with a part that is not trained."""

    features: FixedWeight
    prior: Float[Array, ""]


def test_fixed_parameters_stay_as_they_are():
    """By their type, wherever they are; also with weight decay."""
    before = PartlyFixed(FixedWeight(parameters().weight), parameters().prior)
    after = follow(updater(Adam(weight_decay=0.1), before), before, gradients(like=before))
    assert (after.features.weight == before.features.weight).all()
    assert after.prior != before.prior


def test_clipping_is_over_all_parameters():
    optimizer, params = updater(SGD(schedule="constant", clip_norm=0.5), parameters(), rate=1.0), parameters()
    gradient = jax.tree.map(lambda x: jnp.full(x.shape, 3.0, x.dtype), params)
    after = optimizer.update(gradient, optimizer.init(params), params, jnp.int32(0))
    np.testing.assert_allclose(after.gradient_norm, 6.0)
    moved = jax.tree.leaves(jax.tree.map(lambda a, b: a - b, after.params, params))
    np.testing.assert_allclose(math.sqrt(sum(float(jnp.sum(x**2)) for x in moved)), 0.5)


def test_own_transformation(lenient_promotion):
    """It is not clipped, and has a rate of its own."""
    own = updater(optax.sgd(0.5), parameters())
    gradient = jax.tree.map(lambda x: 100 * x, gradients()[0])
    params = parameters()
    after = own.update(gradient, own.init(params), params, jnp.int32(0))
    np.testing.assert_allclose(after.params.weight, params.weight - 0.5 * gradient.weight)
    assert np.isnan(after.learning_rate)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"schedule": "constant"}, lambda s: 1.0),
        ({"schedule": "constant", "warmup_steps": 4}, lambda s: min((s + 1) / 4, 1)),
        ({"schedule": "exponential", "decay_steps": 10}, lambda s: 0.01 ** min(s / 10, 1)),
        ({"schedule": "exponential", "final_fraction": 0.5}, lambda s: 0.5 ** min(s / 20, 1)),
        ({"schedule": "cosine"}, lambda s: 0.01 + 0.99 * (1 + math.cos(math.pi * min(s / 20, 1))) / 2),
        (
            {"schedule": "warmup-cosine", "warmup_steps": 5},
            lambda s: (s + 1) / 5 if s < 5 else 0.01 + 0.99 * (1 + math.cos(math.pi * min((s - 5) / 15, 1))) / 2,
        ),
        (
            {"schedule": "warmup-cosine"},  # 5 % of 20 steps
            lambda s: 1.0 if s < 1 else 0.01 + 0.99 * (1 + math.cos(math.pi * min((s - 1) / 19, 1))) / 2,
        ),
    ],
)
def test_schedules(settings, expected):
    optimizer = Adam(**settings)
    rate = jax.jit(lambda step: optimizer.rate(2.0, 20, step, jnp.float64))
    for step in range(25):
        np.testing.assert_allclose(rate(jnp.int32(step)), 2 * expected(step), rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "depends"),
    [
        ({"schedule": "cosine"}, True),
        ({"schedule": "cosine", "decay_steps": 10}, False),
        ({"schedule": "constant"}, False),
        ({"schedule": "constant", "warmup_steps": 4}, False),
        ({"schedule": "warmup-cosine", "decay_steps": 100}, False),
    ],
)
def test_whether_a_schedule_depends_on_the_end(settings, depends):
    assert Adam(**settings).depends_on_end == depends


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"final_fraction": 0.0}, r"Adam\.final_fraction is 0\.0: it must be a number above 0 and of at most 1"),
        ({"clip_norm": -1.0}, r"Adam\.clip_norm is -1\.0: it must be a positive number, or None"),
        ({"beta1": 1.0}, r"Adam\.beta1 is 1\.0: it must be a number of at least 0 and below 1"),
        ({"schedule": "cosin"}, r"Adam\.schedule is 'cosin': it must be one of 'constant', 'cosine', "),
        ({"decay_steps": 0}, r"Adam\.decay_steps is 0: it must be a whole number of at least 1, or None"),
    ],
)
@pytest.mark.usefixtures("unchecked_types")
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        Adam(**settings)
