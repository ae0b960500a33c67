"""The part of training that runs on the device: several optimiser steps per call, and the validation.

The number of steps of a call is an argument of the compiled loop, not part of it. So one program serves calls of every
length, nothing is compiled twice, and how a run is cut into calls cannot change its numbers. The loop stops by itself
when no model is left alive, that is when a loss, gradient or parameter is no longer finite; the state from before that
step is kept.

Several models are trained at once by mapping the step (not the loop) over them: the order of the data is then drawn
once per epoch and not, as with a mapped conditional, at every step.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int

from rpgssm.data import Sequences

from .batching import Order, Plan, batch_at, in_order, shuffle
from .config import TrainingConfig
from .optimiser import Optimiser, path_name
from .state import TrainingState

Objective = Callable[[Any, Sequences, Any], tuple[Any, Any]]
Project = Callable[[Any], Any]

_ORDER, _STEP, _VALIDATION = range(3)  # what each of the three keys is for


class Attempt(eqx.Module):
    """What one step found, as told to the user if it fails."""

    loss: Float[Array, "*models"]
    info: Any
    finite_gradient: Any
    finite_params: Any
    sequences: Int[Array, "*models batch"]


class Advance(NamedTuple):
    """What a call returns: `rows[name][i]` are the terms after its step i, averaged since the last row."""

    state: TrainingState
    alive: Bool[Array, "*models"]
    rows: dict[str, Float[Array, "capacity *models"]]
    attempt: Attempt


class Program:
    """The compiled functions of a training run, for one model or (`many`) for several stacked along the first axis."""

    def __init__(
        self,
        objective: Objective,
        static: Any,
        plan: Plan,
        optimiser: Optimiser,
        config: TrainingConfig,
        *,
        project: Project | None = None,
        validation: Plan | None = None,
        capacity: int = 1,
        many: bool = False,
    ) -> None:
        self._objective = objective
        self._static = static
        self._plan = plan
        self._optimiser = optimiser
        self._config = config
        self._project = project
        self._validation = validation
        self._many = many
        self.capacity = capacity
        self._advance: Callable[..., Advance] | None = None
        self._evaluate: Callable[..., dict[str, Array]] | None = None
        self._blank: Any = None  # shapes of an `Attempt`

    def initial_state(self, params: Any, seed: int, data: Sequences) -> TrainingState:
        """The state of one model before the first step."""
        params = jax.tree.map(lambda x: jnp.array(x, dtype=x.dtype), params)
        optimiser = strong(self._optimiser.init(params))
        keys = jr.key_data(jr.split(jr.key(seed), 3))
        state = TrainingState(params, optimiser, keys, jnp.zeros((), jnp.int32), {})
        terms, self._blank = jax.eval_shape(lambda s, d: self._forward(s, d), state, data)
        totals = {name: jnp.zeros((), x.dtype) for name, x in terms.items()}
        return eqx.tree_at(lambda s: s.totals, state, totals)

    def compile(self, state: TrainingState, data: Sequences, validation: Sequences | None) -> None:
        zero = np.zeros((), np.int32)
        alive = jnp.ones(state.step.shape, bool)
        self._advance = compiled(self._advance_all, state, alive, data, zero, zero)
        if validation is not None:
            self._evaluate = compiled(self._evaluate_all, state.params, state.keys, validation)

    def advance(self, state: TrainingState, alive: Array, data: Sequences, start: int, steps: int) -> Advance:
        """Do `steps` steps, at most `capacity`, of which the first is number `start` (from 0)."""
        assert self._advance is not None
        assert steps <= self.capacity
        return self._advance(state, alive, data, np.int32(start), np.int32(steps))

    def evaluate(self, state: TrainingState, data: Sequences) -> dict[str, Array]:
        """The terms of the objective on validation data, averaged over batches."""
        assert self._evaluate is not None
        return self._evaluate(state.params, state.keys, data)

    def _advance_all(self, state: TrainingState, alive: Array, data: Sequences, start: Array, steps: Array) -> Advance:
        plan = self._plan

        def order_of(epoch: Array) -> Order:
            def one(keys):
                return shuffle(plan, _key(keys, _ORDER), epoch)

            return jax.vmap(one)(state.keys) if self._many else one(state.keys)

        def step(state, alive, order, attempt, index):
            return self._step(state, alive, order, attempt, index, data)

        if self._many:
            step = jax.vmap(step, in_axes=(0, 0, 0, 0, None))

        def going(carry):
            i, _, _, alive, _, _ = carry
            return (i < steps) & jnp.any(alive)

        def body(carry):
            i, order, state, alive, rows, attempt = carry
            index = start + i
            fresh = (index % plan.batches == 0) | (i == 0)
            order = jax.lax.cond(fresh, lambda: order_of(index // plan.batches), lambda: order)
            state, alive, row, attempt = step(state, alive, order, attempt, index)
            rows = {name: column.at[i].set(row[name]) for name, column in rows.items()}
            return i + 1, order, state, alive, rows, attempt

        order = jax.tree.map(lambda x: jnp.zeros(x.shape, x.dtype), jax.eval_shape(order_of, start))
        models = state.step.shape

        attempt = jax.tree.map(lambda x: jnp.zeros((*models, *x.shape), x.dtype), self._blank)
        names = [*state.totals, "learning_rate"]
        rows = {name: jnp.zeros((self.capacity, *models), state.totals["loss"].dtype) for name in names}
        carry = (jnp.zeros((), jnp.int32), order, state, alive, rows, attempt)
        _, _, state, alive, rows, attempt = jax.lax.while_loop(going, body, carry)
        return Advance(state, alive, rows, attempt)

    def _step(
        self, state: TrainingState, alive: Array, order: Order, before: Attempt, index: Array, data: Sequences
    ) -> tuple[TrainingState, Array, dict[str, Array], Attempt]:
        gradient, attempt = self._try(state, order, index, data)
        params, optimiser, norm, rate = self._optimiser.update(gradient, state.optimiser, state.params, index)
        if self._project is not None:
            projected = self._project(eqx.combine(params, self._static))
            params = _like(eqx.filter(projected, eqx.is_inexact_array), params)
        attempt = eqx.tree_at(lambda a: a.finite_params, attempt, _finite(params))
        good = jnp.isfinite(attempt.loss) & _all(attempt.finite_gradient) & _all(attempt.finite_params)

        place = index % self._config.log_every
        terms = terms_of(attempt.loss, attempt.info) | {"gradient_norm": norm.astype(attempt.loss.dtype)}
        totals = {name: jnp.where(place == 0, x, state.totals[name] + x) for name, x in terms.items()}
        count = (place + 1).astype(attempt.loss.dtype)
        row = {name: x / count for name, x in totals.items()} | {"learning_rate": rate.astype(attempt.loss.dtype)}

        after = TrainingState(params, strong(optimiser), state.keys, state.step + 1, totals)
        state = jax.tree.map(lambda new, old: jnp.where(alive & good, new, old), after, state)
        attempt = jax.tree.map(lambda new, old: jnp.where(alive, new, old), attempt, before)
        return state, alive & good, row, attempt

    def _try(self, state: TrainingState, order: Order, index: Array, data: Sequences) -> tuple[Any, Attempt]:
        """The gradient of the loss on the batch of a step, and what else is known of it."""
        batch, sequences = batch_at(data, self._plan, order, index % self._plan.batches)
        key = jr.fold_in(_key(state.keys, _STEP), index)

        def loss(params):
            value, info = self._objective(eqx.combine(params, self._static), batch, key)
            return value, strong(info)

        (value, info), gradient = jax.value_and_grad(loss, has_aux=True)(state.params)
        return gradient, Attempt(strong(value), info, _finite(gradient), _true(state.params), sequences)

    def _forward(self, state: TrainingState, data: Sequences) -> tuple[dict[str, Array], Attempt]:
        """What is known of a batch without a gradient, for its shapes; and whether the objective is one."""
        order = in_order(self._plan)
        batch, sequences = batch_at(data, self._plan, order, jnp.zeros((), jnp.int32))
        result = self._objective(eqx.combine(state.params, self._static), batch, _key(state.keys, _STEP))
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError("The objective must return (loss, info): a number and a dictionary or module of arrays.")
        loss, info = result
        if jnp.shape(loss) != () or not jnp.issubdtype(jnp.result_type(loss), jnp.floating):
            found = f"{jnp.result_type(loss)}{list(jnp.shape(loss))}"
            raise ValueError(f"The loss must be one floating point number, but the objective returned {found}.")
        attempt = Attempt(strong(loss), strong(info), _true(state.params), _true(state.params), sequences)
        return terms_of(loss, info) | {"gradient_norm": loss}, attempt

    def _evaluate_all(self, params: Any, keys: Array, data: Sequences) -> dict[str, Array]:
        plan = self._validation
        assert plan is not None
        order = in_order(plan)

        def one(params, keys):
            model = eqx.combine(params, self._static)

            def terms(index):
                batch, _ = batch_at(data, plan, order, index)
                return terms_of(*self._objective(model, batch, jr.fold_in(_key(keys, _VALIDATION), index)))

            values = jax.lax.map(terms, jnp.arange(plan.batches, dtype=jnp.int32))
            return {name: jnp.mean(x) for name, x in values.items()}

        return jax.vmap(one)(params, keys) if self._many else one(params, keys)


def compiled(f: Callable, *arguments: Any) -> Callable:
    """A function compiled for arguments like these, which refuses others instead of being compiled again."""
    return jax.jit(f).lower(*arguments).compile()


def terms_of(loss: Any, info: Any) -> dict[str, Array]:
    """The loss and the scalars of `info` by name, except what it says of each sequence."""
    loss = jnp.asarray(loss)
    terms = {"loss": loss}
    for path, leaf in jax.tree_util.tree_leaves_with_path(info):
        name = path_name(path)
        if jnp.shape(leaf) == () and name != "loss" and "per_sequence" not in name.split("."):
            terms[name] = jnp.asarray(leaf).astype(loss.dtype)
    return terms


def strong(tree: Any) -> Any:
    """Arrays whose dtype is their own and not that of a Python number, so that a loop can carry them."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), tree)


def _key(keys: Array, purpose: int) -> Any:
    return jr.wrap_key_data(keys[purpose])


def _true(tree: Any) -> Any:
    return jax.tree.map(lambda _: jnp.ones((), bool), tree)


def _finite(tree: Any) -> Any:
    return jax.tree.map(lambda x: jnp.all(jnp.isfinite(x)), tree)


def _all(tree: Any) -> Array:
    return jnp.all(jnp.stack(jax.tree.leaves(tree)))


def _like(projected: Any, params: Any) -> Any:
    if jax.tree.structure(projected) != jax.tree.structure(params):
        raise ValueError("`project` must return a model of the same structure as the one it was given.")
    return jax.tree.map(lambda new, old: new.astype(old.dtype), projected, params)
