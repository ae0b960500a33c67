"""Linear recurrences: the only things that run along time, apart from the covariance recursion itself.

Given the gains, the information vectors of all messages (and every backward pass) obey one of

    vectors:    x_{s+1} = G_s (x_s + a_s)              x_0 = 0
    matrices:   X_s = G_s' X_{s+1} G_s + Y_s           X_S = 0

Both run as a sequential scan (best on CPU) or an associative scan (best on GPU and TPU). Shapes are time first:
`(steps, direction, batch, ...)`, where the two directions are the forward and the backward messages, run side by side.
The gains may have a batch axis of length 1: one matrix product then serves the whole batch.
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .linalg import mm, mv, transpose

Driver = Literal["sequential", "parallel"]


def _apply(G, x):
    """G x for each member of the batch; (d, 1, k, k) or (d, b, k, k) times (d, b, k)."""
    if G.shape[-3] == 1:
        return mm(x, transpose(G[..., 0, :, :]))
    return mv(G, x)


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def linear_recurrence(
    G: Float[Array, "s d c k k"], a: Float[Array, "s d b k"], driver: Driver = "sequential", reverse: bool = False
) -> Float[Array, "s d b k"]:
    """x_1 .. x_S of x_{s+1} = G_s (x_s + a_s), x_0 = 0; with `reverse`, x_s = G_s (x_{s+1} + a_s) from the end."""
    if driver == "sequential":
        shared = G.shape[2] == 1
        gains = transpose(G[:, :, 0]) if shared else G  # transposed once here rather than in every step

        def step(x, inputs):
            gain, a = inputs
            x = mm(x + a, gain) if shared else mv(gain, x + a)
            return x, x

        return lax.scan(step, jnp.zeros(a.shape[1:], a.dtype), (gains, a), reverse=reverse)[1]

    def combine(first, second):
        # x → G₂(G₁x + g₁) + g₂
        (G1, g1), (G2, g2) = first, second
        return mm(G2, G1), _apply(G2, g1) + g2

    return lax.associative_scan(combine, (G, _apply(G, a)), reverse=reverse)[1]


def _linear_recurrence_fwd(G, a, driver, reverse):
    x = linear_recurrence(G, a, driver, reverse)
    return x, (G, a, x)


def _linear_recurrence_bwd(driver, reverse, saved, x_bar):
    G, a, x = saved
    # With y_s = x_s + a_s:  ȳ_s = G_s'(x̄_s + ȳ_{s+1}): the same recurrence, the other way, with transposed gains.
    y_bar = linear_recurrence(transpose(G), x_bar, driver, not reverse)
    lam = x_bar + shift(jnp.asarray(y_bar), not reverse)
    y = a + shift(x, reverse)
    if G.shape[2] == 1:
        return mm(transpose(lam), y)[:, :, None], y_bar
    return lam[..., :, None] * y[..., None, :], y_bar


linear_recurrence.defvjp(_linear_recurrence_fwd, _linear_recurrence_bwd)


def shift(x: Float[Array, "s *rest"], back: bool = False) -> Float[Array, "s *rest"]:
    """What entered each step: x_0 = 0, x_1, .. x_{S-1}; with `back` the same from the other end."""
    zero = jnp.zeros_like(x[:1])
    return jnp.concatenate([x[1:], zero] if back else [zero, x[:-1]])


def conjugate_recurrence(
    G: Float[Array, "s d c k k"], Y: Float[Array, "s d c k k"], driver: Driver = "sequential"
) -> Float[Array, "s d c k k"]:
    """X_s = G_s' X_{s+1} G_s + Y_s from the end, X_S = 0, for symmetric Y: how derivatives of covariances travel."""
    if driver == "sequential":

        def step(X, inputs):
            G, Gt, Y = inputs
            X = mm(mm(Gt, X), G) + Y
            return X, X

        return lax.scan(step, jnp.zeros(Y.shape[1:], Y.dtype), (G, transpose(G), Y), reverse=True)[1]

    def combine(first, second):
        (G1, Y1), (G2, Y2) = first, second
        return mm(G1, G2), mm(transpose(G2), mm(Y1, G2)) + Y2

    return lax.associative_scan(combine, (G, Y), reverse=True)[1]
