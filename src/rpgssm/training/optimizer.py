"""Optimizers: the direction of a step, its schedule, clipping, and a separate rate for the prior.

An `Optimizer` is a setting. `Updater` applies it to the parameters of a model. The optimizer gives a direction; its
factors are minus the learning rate of the step and the relative rate of each parameter. So the step index reaches the
schedule as an argument, and separate rates need no separate state.
"""

import math
from abc import abstractmethod
from typing import Any, Literal, NamedTuple

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Float, Int, PyTree

from rpgssm.model import Fixed
from rpgssm.settings import Behaviour, setting

Schedule = Literal["constant", "cosine", "exponential", "warmup-cosine"]


class Optimizer(Behaviour, abstract=True):
    """An update rule of parameters. The learning rate of the networks is a setting of the training."""

    prior_rate: float | None = setting(
        None, "Learning rate of the prior, before the schedule. None: that of the networks.", least=0, neutral=None
    )
    schedule: Schedule = setting("cosine", "How the learning rate changes with the steps.")
    decay_steps: int | None = setting(
        None, "Steps over which the learning rate falls. None: all steps.", least=1, neutral=None
    )
    final_fraction: float = setting(0.01, "Fraction of the learning rate at the end of these.", above=0, most=1)
    warmup_steps: int | None = setting(
        None,
        "Steps over which the learning rate rises from 0. None: 5 % of them for warmup-cosine, else none.",
        least=0,
        neutral=None,
    )
    clip_norm: float | None = setting(
        10.0, "Gradients are scaled down to this norm over all parameters. None: never.", above=0
    )
    weight_decay: float = setting(0.0, "Decoupled weight decay.", least=0, neutral=0.0)

    @abstractmethod
    def direction(self) -> optax.GradientTransformation:
        """The transformation of gradients to directions of ascent."""

    @property
    def depends_on_end(self) -> bool:
        """Whether the schedule depends on the number of steps of the whole training."""
        return self.decay_steps is None and self.schedule != "constant"

    def warmup(self, max_steps: int) -> int:
        """The number of steps over which the learning rate rises."""
        if self.warmup_steps is not None:
            return self.warmup_steps
        steps = max_steps if self.decay_steps is None else self.decay_steps
        return math.ceil(0.05 * steps) if self.schedule == "warmup-cosine" else 0

    def rate(self, rate: float, max_steps: int, step: Int[Array, ""], dtype: Any) -> Float[Array, ""]:
        """The learning rate of a step, counted from 0."""
        s = step.astype(dtype)
        warmup, end = self.warmup(max_steps), max_steps if self.decay_steps is None else self.decay_steps
        progress = jnp.clip((s - warmup) / max(end - warmup, 1), 0.0, 1.0)
        if self.schedule == "constant":
            factor = jnp.ones((), dtype)
        elif self.schedule == "exponential":
            factor = jnp.asarray(self.final_fraction, dtype) ** progress
        else:
            factor = self.final_fraction + (1 - self.final_fraction) * 0.5 * (1 + jnp.cos(jnp.pi * progress))
        if warmup:
            factor = factor * jnp.clip((s + 1) / warmup, 0.0, 1.0)
        return rate * factor


class Adam(Optimizer):
    """Adam; with `weight_decay`, AdamW."""

    beta1: float = setting(0.9, "Memory of the first moment.", least=0, below=1)
    beta2: float = setting(0.999, "Memory of the second moment.", least=0, below=1)

    def direction(self) -> optax.GradientTransformation:
        return optax.scale_by_adam(self.beta1, self.beta2)


class SGD(Optimizer):
    """Stochastic gradient descent."""

    momentum: float = setting(0.0, "Memory of the momentum. 0: none.", least=0, below=1)

    def direction(self) -> optax.GradientTransformation:
        return optax.trace(self.momentum) if self.momentum else optax.identity()


class Update(NamedTuple):
    """The result of one step of the optimizer."""

    params: PyTree
    state: PyTree
    gradient_norm: Float[Array, ""]
    learning_rate: Float[Array, ""]


def path_name(path: tuple[Any, ...]) -> str:
    """The path of a leaf in words: `prior.A`, `encoder.layers.0.weight`."""
    return jax.tree_util.keystr(path, simple=True, separator=".")


def global_norm(tree: PyTree) -> Float[Array, ""]:
    """The Euclidean norm over all arrays of a pytree, in the widest of their dtypes."""
    leaves = jax.tree.leaves(tree)
    dtype = max((x.dtype for x in leaves), key=lambda dtype: jnp.finfo(dtype).bits)
    return jnp.sqrt(sum((jnp.sum(jnp.square(x.astype(dtype))) for x in leaves), jnp.zeros((), dtype)))


class Updater:
    """One step of an optimizer on the parameters of a model.

    A raw optax transformation has its own learning rate, schedule and clipping: its result is added without changes.
    The parameters of the prior are those under the attribute `prior` of the model.
    """

    def __init__(
        self, optimizer: Optimizer | optax.GradientTransformation, rate: float, max_steps: int, params: PyTree
    ) -> None:
        self._own = optimizer if isinstance(optimizer, Optimizer) else None
        self._learning_rate, self._max_steps = rate, max_steps
        self._direction = _direction(optimizer) if isinstance(optimizer, Optimizer) else optimizer
        self._relative = _relative_rates(self._own, rate, params)

    def init(self, params: PyTree) -> PyTree:
        return self._direction.init(params)

    def update(self, gradient: PyTree, state: PyTree, params: PyTree, step: Int[Array, ""]) -> Update:
        """Parameters and optimizer state after step `step` (from 0)."""
        norm = global_norm(gradient)
        clip = None if self._own is None else self._own.clip_norm
        if clip is not None:
            scale = jnp.minimum(1.0, clip / jnp.maximum(norm, jnp.finfo(norm.dtype).tiny))
            gradient = jax.tree.map(lambda g: g * scale.astype(g.dtype), gradient)
        with jax.numpy_dtype_promotion("standard"):  # optax relies on it
            direction, after = self._direction.update(gradient, state, params)
        state = jax.tree.map(lambda new, old: jnp.asarray(new).astype(old.dtype), after, state)
        if self._own is None:
            rate, factor = jnp.full((), jnp.nan, norm.dtype), jnp.ones((), norm.dtype)
        else:
            rate = self._own.rate(self._learning_rate, self._max_steps, step, norm.dtype)
            factor = -rate
        params = jax.tree.map(
            lambda p, d, r: p if r == 0.0 else p + d.astype(p.dtype) * (factor * r).astype(p.dtype),
            params,
            direction,
            self._relative,
        )
        return Update(params, state, norm, rate)


def _direction(optimizer: Optimizer) -> optax.GradientTransformation:
    direction = optimizer.direction()
    if optimizer.weight_decay:
        return optax.chain(direction, optax.add_decayed_weights(optimizer.weight_decay))
    return direction


def _relative_rates(optimizer: Optimizer | None, rate: float, params: PyTree) -> PyTree:
    """The rate of each parameter relative to the learning rate, as Python numbers; 0 inside of `Fixed` modules."""
    prior = 1.0
    if optimizer is not None and optimizer.prior_rate is not None:
        if rate == 0:
            raise ValueError("prior_rate needs a learning_rate above 0")
        prior = optimizer.prior_rate / rate

    def relative(path: tuple[Any, ...], part: PyTree) -> PyTree:
        if isinstance(part, Fixed):
            return jax.tree.map(lambda _: 0.0, part)
        return prior if path_name(path).split(".", 1)[0] == "prior" else 1.0

    return jax.tree_util.tree_map_with_path(relative, params, is_leaf=lambda x: isinstance(x, Fixed))
