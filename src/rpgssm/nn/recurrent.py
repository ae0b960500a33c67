"""Recurrent networks over batches of sequences.

The inputs of all frames are mapped at once; the loop over time computes only what depends on the previous state.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from rpgssm.nn.layers import Dense, split, variance_scaling


class GRU(eqx.Module):
    """Gated recurrent unit: with gates r, u = σ(.), h' = u h + (1 - u) tanh(W x + r (U h) + b)."""

    inputs: Dense
    recurrent: Float[Array, "h h3"]

    def __init__(self, in_dim: int, hidden: int, *, key: PRNGKeyArray, dtype=jnp.float32):
        self.inputs, self.recurrent = _gates(3, in_dim, hidden, key, dtype)

    @property
    def hidden(self) -> int:
        return self.recurrent.shape[0]

    def start(self, n: int) -> Float[Array, "n h"]:
        return jnp.zeros((n, self.hidden), self.recurrent.dtype)

    def step(self, state: Float[Array, "n h"], mapped: Float[Array, "n h3"]) -> Float[Array, "n h"]:
        """The next state; `mapped` is the output of `inputs`."""
        k = self.hidden
        before = state @ self.recurrent
        gates = jax.nn.sigmoid(mapped[:, : 2 * k] + before[:, : 2 * k])
        r, u = gates[:, :k], gates[:, k:]
        return u * state + (1 - u) * jnp.tanh(mapped[:, 2 * k :] + r * before[:, 2 * k :])

    def __call__(
        self, x: Float[Array, "n t i"], there: Bool[Array, "n t"] | None = None, *, reverse: bool = False
    ) -> Float[Array, "n t h"]:
        """The states after each frame; with `reverse`, of a pass from the last frame to the first.

        A frame that is not `there` does not change the state.
        """

        def step(state, inputs):
            mapped, there = inputs
            after = self.step(state, mapped)
            state = after if there is None else jnp.where(there[:, None], after, state)
            return state, state

        return _along_time(step, self.start(x.shape[0]), (_mapped(self.inputs, x), there), reverse)


class LSTM(eqx.Module):
    """Long short-term memory; the state is the pair (h, c)."""

    inputs: Dense
    recurrent: Float[Array, "h h4"]

    def __init__(self, in_dim: int, hidden: int, *, key: PRNGKeyArray, dtype=jnp.float32):
        self.inputs, self.recurrent = _gates(4, in_dim, hidden, key, dtype)

    @property
    def hidden(self) -> int:
        return self.recurrent.shape[0]

    def start(self, n: int) -> tuple[Float[Array, "n h"], Float[Array, "n h"]]:
        zero = jnp.zeros((n, self.hidden), self.recurrent.dtype)
        return zero, zero

    def step(
        self, state: tuple[Float[Array, "n h"], Float[Array, "n h"]], mapped: Float[Array, "n h4"]
    ) -> tuple[Float[Array, "n h"], Float[Array, "n h"]]:
        h, c = state
        i, f, o, g = jnp.split(mapped + h @ self.recurrent, 4, axis=-1)
        c = jax.nn.sigmoid(f + 1) * c + jax.nn.sigmoid(i) * jnp.tanh(g)  # + 1: remember, to begin with
        return jax.nn.sigmoid(o) * jnp.tanh(c), c

    def __call__(self, x: Float[Array, "n t i"]) -> Float[Array, "n t h"]:
        """The outputs after each frame."""

        def step(state, mapped):
            state = self.step(state, mapped)
            return state, state[0]

        return _along_time(step, self.start(x.shape[0]), _mapped(self.inputs, x), False)


class BidirectionalGRU(eqx.Module):
    """A GRU in each direction; their states side by side."""

    forward: GRU
    backward: GRU

    def __init__(self, in_dim: int, hidden: int, *, key: PRNGKeyArray, dtype=jnp.float32):
        first, second = split(key, 2)
        self.forward = GRU(in_dim, hidden, key=first, dtype=dtype)
        self.backward = GRU(in_dim, hidden, key=second, dtype=dtype)

    @property
    def out_dim(self) -> int:
        return self.forward.hidden + self.backward.hidden

    def __call__(self, x: Float[Array, "n t i"], there: Bool[Array, "n t"] | None = None) -> Float[Array, "n t h"]:
        return jnp.concatenate([self.forward(x, there), self.backward(x, there, reverse=True)], -1)


def _gates(count: int, in_dim: int, hidden: int, key: PRNGKeyArray, dtype) -> tuple[Dense, Float[Array, "h gates"]]:
    """The maps from inputs and from the state to `count` gates."""
    first, second = split(key, 2)
    inputs = Dense(in_dim, count * hidden, key=first, gain=1.0, dtype=dtype)
    return inputs, variance_scaling(second, (hidden, count * hidden), 1.0, dtype)


def _mapped(dense: Dense, x: Float[Array, "n t i"]) -> Float[Array, "n t o"]:
    n, t, i = x.shape
    return dense(x.reshape(n * t, i)).reshape(n, t, -1)


def _along_time(step, start, x, reverse):
    inputs = jax.tree.map(lambda x: jnp.moveaxis(x, 1, 0), x)
    return jnp.moveaxis(lax.scan(step, start, inputs, reverse=reverse)[1], 0, 1)
