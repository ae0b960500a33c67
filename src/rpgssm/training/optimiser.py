"""Optimiser, schedule, clipping and separate rates, put together.

The optimiser gives a direction; it is multiplied here by minus the learning rate of the step and by the relative rate
of each parameter. So the step index reaches the schedule as an argument, and separate rates need no separate state.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int

from .config import TrainingConfig

Label = Callable[[str], str]
"""From the path of a parameter ("prior.A") to "prior", "main" or "frozen"."""

LABELS = ("main", "prior", "frozen")


class Update(NamedTuple):
    """What one step of the optimiser gives."""

    params: Any
    state: Any
    gradient_norm: Float[Array, ""]
    learning_rate: Float[Array, ""]


def prior_label(path: str) -> str:
    """The default label: the parameters under the attribute `prior` of the model are those of the prior."""
    return "prior" if path.split(".", 1)[0] == "prior" else "main"


def path_name(path: tuple[Any, ...]) -> str:
    """The path of a leaf as one reads it: `prior.A`, `encoder.layers.0.weight`."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def learning_rate(config: TrainingConfig, step: Int[Array, ""], dtype: Any) -> Float[Array, ""]:
    """The learning rate of a step, counted from 0."""
    s = step.astype(dtype)
    warmup, end = config.schedule_warmup, config.schedule_steps
    progress = jnp.clip((s - warmup) / max(end - warmup, 1), 0.0, 1.0)
    if config.schedule == "constant":
        factor = jnp.ones((), dtype)
    elif config.schedule == "exponential":
        factor = jnp.asarray(config.final_fraction, dtype) ** progress
    else:
        factor = config.final_fraction + (1 - config.final_fraction) * 0.5 * (1 + jnp.cos(jnp.pi * progress))
    if warmup:
        factor = factor * jnp.clip((s + 1) / warmup, 0.0, 1.0)
    return config.learning_rate * factor


def global_norm(tree: Any) -> Float[Array, ""]:
    """The Euclidean norm over all arrays of a pytree, in the widest of their dtypes."""
    leaves = jax.tree.leaves(tree)
    dtype = max((x.dtype for x in leaves), key=lambda dtype: jnp.finfo(dtype).bits)
    return jnp.sqrt(sum((jnp.sum(jnp.square(x.astype(dtype))) for x in leaves), jnp.zeros((), dtype)))


class Optimiser:
    """The whole of an optimiser step. `custom`, if given, replaces optimiser, learning rate and schedule."""

    def __init__(
        self,
        config: TrainingConfig,
        params: Any,
        label: Label | None = None,
        custom: optax.GradientTransformation | None = None,
    ) -> None:
        self._config = config
        self._custom = custom is not None
        self._direction = custom if custom is not None else _direction(config)
        self._relative = _relative_rates(config, params, label or prior_label)

    def init(self, params: Any) -> Any:
        return self._direction.init(params)

    def update(self, gradient: Any, state: Any, params: Any, step: Int[Array, ""]) -> Update:
        """Parameters and optimiser state after step `step` (from 0)."""
        norm = global_norm(gradient)
        if self._config.clip_norm is not None:
            scale = jnp.minimum(1.0, self._config.clip_norm / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny))
            gradient = jax.tree.map(lambda g: g * scale.astype(g.dtype), gradient)
        with jax.numpy_dtype_promotion("standard"):  # optax relies on it
            direction, after = self._direction.update(gradient, state, params)
        state = jax.tree.map(lambda new, old: jnp.asarray(new).astype(old.dtype), after, state)
        if self._custom:
            rate, factor = jnp.full((), jnp.nan, norm.dtype), jnp.ones((), norm.dtype)
        else:
            rate = learning_rate(self._config, step, norm.dtype)
            factor = -rate
        params = jax.tree.map(
            lambda p, d, r: p if r == 0.0 else p + d.astype(p.dtype) * (factor * r).astype(p.dtype),
            params,
            direction,
            self._relative,
        )
        return Update(params, state, norm, rate)


def _direction(config: TrainingConfig) -> optax.GradientTransformation:
    b1, b2 = config.beta1, config.beta2
    momentum = optax.trace(config.momentum) if config.momentum else optax.identity()
    kinds = {
        "adam": lambda: optax.scale_by_adam(b1, b2),
        "adamw": lambda: optax.scale_by_adam(b1, b2),
        "nadam": lambda: optax.scale_by_adam(b1, b2, nesterov=True),
        "radam": lambda: optax.scale_by_radam(b1, b2),
        "adabelief": lambda: optax.scale_by_belief(b1, b2),
        "lion": lambda: optax.scale_by_lion(b1, b2),
        "rmsprop": lambda: optax.chain(optax.scale_by_rms(b2), momentum),
        "sgd": lambda: momentum,
    }
    direction = kinds[config.optimiser]()
    if config.weight_decay:
        return optax.chain(direction, optax.add_decayed_weights(config.weight_decay))
    return direction


def _relative_rates(config: TrainingConfig, params: Any, label: Label) -> Any:
    """The rate of each parameter relative to `learning_rate`, as Python numbers."""
    prior = 1.0
    if config.prior_learning_rate is not None:
        if config.learning_rate == 0:
            raise ValueError("prior_learning_rate needs a learning_rate above 0; to freeze the rest, use `label`.")
        prior = config.prior_learning_rate / config.learning_rate
    rates = {"main": 1.0, "prior": prior, "frozen": 0.0}

    def rate(path: tuple[Any, ...], _: Any) -> float:
        name = path_name(path)
        found = label(name)
        if found not in rates:
            raise ValueError(f"label('{name}') gave {found!r}: it must be one of {', '.join(LABELS)}.")
        return rates[found]

    return jax.tree_util.tree_map_with_path(rate, params)
