"""The part of training that runs on the device: several optimizer steps per call, and the validation.

The number of steps of a call is an argument of the compiled loop, not part of it. So one program serves calls of every
length, nothing is compiled twice, and the division of a run into calls cannot change its numbers. A model whose loss,
gradient or parameters are no longer finite keeps the state from before that step. The loop stops if this holds for all
models.

Several models are trained at once by mapping the step (not the loop) over them. Then the order of the data is drawn
once per epoch and not, as with a mapped conditional, at every step.
"""

import hashlib
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, Int, PyTree

from rpgssm.data import Sequences

from .augment import Augmentation
from .optimizer import Updater, path_name
from .samplers import Order, Plan, batch_at, in_order, shuffle
from .state import TrainingState

Objective = Callable[[Any, Sequences, Any], tuple[Any, Any]]
Project = Callable[[Any], Any]

_ORDER, _STEP, _VALIDATION = range(3)  # purposes of the three keys


class Attempt(eqx.Module):
    """The results of one step that describe a failure."""

    loss: Float[Array, "*models"]
    info: PyTree
    finite_gradient: Any
    finite_params: Any
    sequences: Int[Array, "*models batch"]


class Advance(NamedTuple):
    """The result of a call: `rows[name][i]` are the terms after its step i, averaged since the last row."""

    state: TrainingState
    alive: Bool[Array, "*models"]
    rows: dict[str, Float[Array, "capacity *models"]]
    attempt: Attempt


@dataclass(eq=False)
class Program:
    """The compiled functions of a training run, for one model or (`many`) for several stacked along the first axis."""

    objective: Objective
    static: PyTree
    plan: Plan
    updater: Updater
    _: KW_ONLY
    augment: Augmentation | None = None
    log_every: int = 10
    project: Project | None = None
    validation: Plan | None = None
    capacity: int = 1
    many: bool = False
    _advance: Callable[..., Advance] | None = field(default=None, init=False)
    _evaluate: Callable[..., dict[str, Array]] | None = field(default=None, init=False)
    _blank: Any = field(default=None, init=False)  # shapes of an `Attempt`

    def initial_state(self, params: PyTree, seed: int, data: Sequences) -> TrainingState:
        """The state of one model before the first step."""
        params = jax.tree.map(lambda x: jnp.array(x, dtype=x.dtype), params)
        optimizer = strong(self.updater.init(params))
        keys = jr.key_data(jr.split(jr.key(seed), 3))
        state = TrainingState(params, optimizer, keys, jnp.zeros((), jnp.int32), {})
        terms, self._blank = jax.eval_shape(lambda s, d: self._forward(s, d), state, data)
        totals = {name: jnp.zeros((), x.dtype) for name, x in terms.items()}
        return eqx.tree_at(lambda s: s.totals, state, totals)

    def digest(self, state: TrainingState, data: Sequences) -> str | None:
        """A hash of the lowered training step of one model. None if it calls back into Python, whose code has no hash.

        It does not depend on the number of steps, nor on their division into calls.
        """

        def step(state, alive, order, before, index, data):
            return self._step(state, alive, order, before, index, data)

        zero, alive = np.zeros((), np.int32), jnp.ones((), bool)
        text = jax.jit(step).lower(state, alive, in_order(self.plan), self._blank, zero, data).as_text()
        return None if "callback" in text else hashlib.sha256(text.encode()).hexdigest()[:16]

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
        plan = self.plan

        def order_of(epoch: Array) -> Order:
            def one(keys):
                return shuffle(plan, _key(keys, _ORDER), epoch)

            return jax.vmap(one)(state.keys) if self.many else one(state.keys)

        def step(state, alive, order, attempt, index):
            return self._step(state, alive, order, attempt, index, data)

        if self.many:
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
        params, optimizer, norm, rate = self.updater.update(gradient, state.optimizer, state.params, index)
        if self.project is not None:
            projected = self.project(eqx.combine(params, self.static))
            params = _like(eqx.filter(projected, eqx.is_inexact_array), params)
        attempt = eqx.tree_at(lambda a: a.finite_params, attempt, _finite(params))
        good = jnp.isfinite(attempt.loss) & _all(attempt.finite_gradient) & _all(attempt.finite_params)

        place = index % self.log_every
        terms = terms_of(attempt.loss, attempt.info) | {"gradient_norm": norm.astype(attempt.loss.dtype)}
        totals = {name: jnp.where(place == 0, x, state.totals[name] + x) for name, x in terms.items()}
        count = (place + 1).astype(attempt.loss.dtype)
        row = {name: x / count for name, x in totals.items()} | {"learning_rate": rate.astype(attempt.loss.dtype)}

        after = TrainingState(params, strong(optimizer), state.keys, state.step + 1, totals)
        state = jax.tree.map(lambda new, old: jnp.where(alive & good, new, old), after, state)
        attempt = jax.tree.map(lambda new, old: jnp.where(alive, new, old), attempt, before)
        return state, alive & good, row, attempt

    def _try(self, state: TrainingState, order: Order, index: Array, data: Sequences) -> tuple[Any, Attempt]:
        """The gradient of the loss on the batch of a step, and the `Attempt`."""
        batch, sequences = batch_at(data, self.plan, order, index % self.plan.batches)
        key = jr.fold_in(_key(state.keys, _STEP), index)
        if self.augment is not None:
            batch = self.augment(batch, key)

        def loss(params):
            value, info = self.objective(eqx.combine(params, self.static), batch, key)
            return value, strong(info)

        (value, info), gradient = jax.value_and_grad(loss, has_aux=True)(state.params)
        return gradient, Attempt(strong(value), info, _finite(gradient), _true(state.params), sequences)

    def _forward(self, state: TrainingState, data: Sequences) -> tuple[dict[str, Array], Attempt]:
        """The terms and the `Attempt` of a batch without a gradient, for their shapes. Checks the objective."""
        order = in_order(self.plan)
        batch, sequences = batch_at(data, self.plan, order, jnp.zeros((), jnp.int32))
        result = self.objective(eqx.combine(state.params, self.static), batch, _key(state.keys, _STEP))
        if not (isinstance(result, tuple) and len(result) == 2):
            raise ValueError("The objective must return (loss, info): a number and a dictionary or module of arrays.")
        loss, info = result
        if jnp.shape(loss) != () or not jnp.issubdtype(jnp.result_type(loss), jnp.floating):
            found = f"{jnp.result_type(loss)}{list(jnp.shape(loss))}"
            raise ValueError(f"The loss must be one floating point number, but the objective returned {found}.")
        attempt = Attempt(strong(loss), strong(info), _true(state.params), _true(state.params), sequences)
        return terms_of(loss, info) | {"gradient_norm": loss}, attempt

    def _evaluate_all(self, params: PyTree, keys: Array, data: Sequences) -> dict[str, Array]:
        plan = self.validation
        assert plan is not None
        order = in_order(plan)

        def one(params, keys):
            model = eqx.combine(params, self.static)

            def terms(index):
                batch, _ = batch_at(data, plan, order, index)
                return terms_of(*self.objective(model, batch, jr.fold_in(_key(keys, _VALIDATION), index)))

            values = jax.lax.map(terms, jnp.arange(plan.batches, dtype=jnp.int32))
            return {name: jnp.mean(x) for name, x in values.items()}

        return jax.vmap(one)(params, keys) if self.many else one(params, keys)


def compiled(f: Callable, *arguments: Any) -> Callable:
    """A function compiled for arguments like these. With others it raises instead of compiling again."""
    return jax.jit(f).lower(*arguments).compile()


def terms_of(loss: Any, info: PyTree) -> dict[str, Array]:
    """The loss and the scalars of `info` by name, without those under `per_sequence`."""
    loss = jnp.asarray(loss)
    terms = {"loss": loss}
    for path, leaf in jax.tree_util.tree_leaves_with_path(info):
        name = path_name(path)
        if jnp.shape(leaf) == () and name != "loss" and "per_sequence" not in name.split("."):
            terms[name] = jnp.asarray(leaf).astype(loss.dtype)
    return terms


def strong(tree: PyTree) -> PyTree:
    """Arrays without weak types (those of Python numbers), so that a loop can carry them."""
    return jax.tree.map(lambda x: jax.lax.convert_element_type(x, jnp.result_type(x)), tree)


def _key(keys: Array, purpose: int) -> Any:
    return jr.wrap_key_data(keys[purpose])


def _true(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda _: jnp.ones((), bool), tree)


def _finite(tree: PyTree) -> PyTree:
    return jax.tree.map(lambda x: jnp.all(jnp.isfinite(x)), tree)


def _all(tree: PyTree) -> Array:
    return jnp.all(jnp.stack(jax.tree.leaves(tree)))


def _like(projected: PyTree, params: PyTree) -> PyTree:
    if jax.tree.structure(projected) != jax.tree.structure(params):
        raise ValueError("`project` must return a model of the same structure as the one it was given.")
    return jax.tree.map(lambda new, old: new.astype(old.dtype), projected, params)
