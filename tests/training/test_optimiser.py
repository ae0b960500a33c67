"""Optimisers against optax used in the ordinary way, schedules against formulas."""

import math

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest

from rpgssm.training import TrainingConfig
from rpgssm.training.optimiser import Optimiser, learning_rate

from .toys import line

ORDINARY = {
    "adam": lambda c: optax.adam(c.learning_rate),
    "adamw": lambda c: optax.adamw(c.learning_rate, weight_decay=c.weight_decay),
    "nadam": lambda c: optax.nadam(c.learning_rate),
    "radam": lambda c: optax.radam(c.learning_rate),
    "adabelief": lambda c: optax.adabelief(c.learning_rate),
    "lion": lambda c: optax.lion(c.learning_rate, b2=0.999, weight_decay=c.weight_decay),
    "rmsprop": lambda c: optax.rmsprop(c.learning_rate, decay=0.999),
    "sgd": lambda c: optax.sgd(c.learning_rate, momentum=c.momentum),
}


def parameters(dtype=jnp.float64):
    return eqx.filter(line(0, dtype), eqx.is_inexact_array)


def gradients(dtype=jnp.float64):
    rng = np.random.default_rng(0)
    like = parameters(dtype)
    return [jax.tree.map(lambda x: jnp.asarray(rng.normal(size=x.shape), dtype), like) for _ in range(3)]


def follow(optimiser, params, grads):
    state = optimiser.init(params)
    for step, gradient in enumerate(grads):
        params, state, *_ = optimiser.update(gradient, state, params, jnp.int32(step))
    return params


@pytest.mark.parametrize(("name", "dtype"), [("adam", jnp.float32), *((name, jnp.float64) for name in ORDINARY)])
def test_as_in_optax(name, dtype, lenient_promotion):
    decay, momentum = (0.1 if name in ("adamw", "lion") else 0.0), (0.9 if name == "sgd" else 0.0)
    config = TrainingConfig(
        optimiser=name, learning_rate=0.1, clip_norm=None, weight_decay=decay, momentum=momentum, beta2=0.999
    )
    found = follow(Optimiser(config, parameters(dtype)), parameters(dtype), gradients(dtype))
    params, ordinary = parameters(dtype), ORDINARY[name](config)
    state = ordinary.init(params)
    for gradient in gradients(dtype):
        updates, state = ordinary.update(gradient, state, params)
        params = optax.apply_updates(params, updates)
    assert found.weight.dtype == dtype
    tolerance = 1e-4 if dtype == jnp.float32 else 1e-7
    np.testing.assert_allclose(found.weight, params.weight, rtol=tolerance, atol=tolerance)
    np.testing.assert_allclose(found.prior, params.prior, rtol=tolerance, atol=tolerance)


def test_separate_rates():
    config = TrainingConfig(optimiser="sgd", learning_rate=0.1, prior_learning_rate=0.01, clip_norm=None)
    (gradient,) = gradients()[:1]
    after = follow(Optimiser(config, parameters()), parameters(), [gradient])
    np.testing.assert_allclose(after.weight, parameters().weight - 0.1 * gradient.weight)
    np.testing.assert_allclose(after.prior, parameters().prior - 0.01 * gradient.prior)


def test_frozen_parameters_stay_as_they_are():
    config = TrainingConfig(weight_decay=0.1)
    optimiser = Optimiser(config, parameters(), label=lambda path: "frozen" if path == "weight" else "main")
    after = follow(optimiser, parameters(), gradients())
    assert (after.weight == parameters().weight).all()
    assert after.prior != parameters().prior


def test_wrong_label():
    with pytest.raises(ValueError, match=r"label\('weight'\) gave 'fast'"):
        Optimiser(TrainingConfig(), parameters(), label=lambda path: "fast")


def test_clipping_is_over_all_parameters():
    config = TrainingConfig(optimiser="sgd", learning_rate=1.0, clip_norm=0.5)
    optimiser, params = Optimiser(config, parameters()), parameters()
    gradient = jax.tree.map(lambda x: jnp.full(x.shape, 3.0, x.dtype), params)
    after = optimiser.update(gradient, optimiser.init(params), params, jnp.int32(0))
    np.testing.assert_allclose(after.gradient_norm, 6.0)
    moved = jax.tree.leaves(jax.tree.map(lambda a, b: a - b, after.params, params))
    np.testing.assert_allclose(math.sqrt(sum(float(jnp.sum(x**2)) for x in moved)), 0.5)


def test_own_transformation(lenient_promotion):
    optimiser = Optimiser(TrainingConfig(clip_norm=None), parameters(), custom=optax.sgd(0.5))
    (gradient,) = gradients()[:1]
    after = follow(optimiser, parameters(), [gradient])
    np.testing.assert_allclose(after.weight, parameters().weight - 0.5 * gradient.weight)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"schedule": "constant"}, lambda s: 1.0),
        ({"schedule": "constant", "warmup_steps": 4}, lambda s: min((s + 1) / 4, 1)),
        ({"schedule": "exponential", "decay_steps": 10}, lambda s: 0.01 ** min(s / 10, 1)),
        ({"schedule": "cosine"}, lambda s: 0.01 + 0.99 * (1 + math.cos(math.pi * min(s / 20, 1))) / 2),
        (
            {"schedule": "warmup-cosine", "warmup_steps": 5},
            lambda s: (s + 1) / 5 if s < 5 else 0.01 + 0.99 * (1 + math.cos(math.pi * min((s - 5) / 15, 1))) / 2,
        ),
    ],
)
def test_schedules(settings, expected):
    config = TrainingConfig(max_steps=20, learning_rate=2.0, **settings)
    rate = jax.jit(lambda step: learning_rate(config, step, jnp.float64))
    for step in range(25):
        np.testing.assert_allclose(rate(jnp.int32(step)), 2 * expected(step), rtol=1e-12)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_steps": 0}, "max_steps = 0"),
        ({"learning_rate": float("nan")}, "learning_rate = nan"),
        ({"steps_per_dispatch": 0}, "steps_per_dispatch = 0"),
        ({"window": 0}, "window = 0"),
        ({"final_fraction": 0.0}, "final_fraction"),
        ({"clip_norm": -1.0}, "clip_norm"),
    ],
)
def test_wrong_settings_are_named(settings, message):
    with pytest.raises(ValueError, match=message):
        TrainingConfig(**settings)
