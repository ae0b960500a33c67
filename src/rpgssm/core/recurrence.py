"""Linear recurrences: the only things that run along time, apart from the covariance recursion itself.

Given the gains, the information vectors of all messages (and every backward pass) obey one of

    vectors:    x_{s+1} = G_s (x_s + a_s) + c_s        x_0 = 0
    matrices:   X_s = G_s'(X_{s+1} + Z_s)G_s + Y_s     X_S = 0

Both run as a sequential scan (best on CPU) or an associative scan (best on GPU and TPU), in either layout. Time is the
first axis. In `Rows` the gains may be shared by all sequences: one matrix product then serves the whole batch.
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .layout import Layout, Rows

Driver = Literal["sequential", "parallel"]


@partial(jax.custom_vjp, nondiff_argnums=(3, 4, 5))
def linear_recurrence(
    G: Float[Array, "s ..."],
    a: Float[Array, "s ..."],
    c: Float[Array, "s ..."] | None = None,
    driver: Driver = "sequential",
    layout: Layout = Rows,
    reverse: bool = False,
) -> Float[Array, "s ..."]:
    """x_1 .. x_S of x_{s+1} = G_s (x_s + a_s) + c_s, x_0 = 0; with `reverse`, x_s = G_s (x_{s+1} + a_s) + c_s."""
    if driver == "sequential":
        shared = layout is Rows and G.shape[-3] == 1
        gains = layout.transpose(G[..., 0, :, :]) if shared else G  # transposed once here rather than in every step

        def step(x, inputs):
            gain, a, c = inputs
            x = layout.mm(x + a, gain) if shared else layout.apply(gain, x + a)
            x = x if c is None else x + c
            return x, x

        return lax.scan(step, jnp.zeros(a.shape[1:], a.dtype), (gains, a, c), reverse=reverse)[1]

    def combine(first, second):
        # x → G₂(G₁x + g₁) + g₂
        (G1, g1), (G2, g2) = first, second
        return layout.mm(G2, G1), layout.apply(G2, g1) + g2

    g = layout.apply(G, a)
    return lax.associative_scan(combine, (G, g if c is None else g + c), reverse=reverse)[1]


def _forward(G, a, c, driver, layout, reverse):
    x = linear_recurrence(G, a, c, driver, layout, reverse)
    return x, (G, a, x, c is None)


def _backward(driver, layout, reverse, saved, x_bar):
    G, a, x, no_offset = saved
    # With y_s = x_s + a_s:  ȳ_s = G_s'(x̄_s + ȳ_{s+1}): the same recurrence, the other way, with transposed gains.
    y_bar = jnp.asarray(linear_recurrence(layout.transpose(G), x_bar, None, driver, layout, not reverse))
    lam = x_bar + shift(y_bar, not reverse)
    y = a + shift(x, reverse)
    return layout.outer(lam, y, G.shape[-3]), y_bar, None if no_offset else lam


linear_recurrence.defvjp(_forward, _backward)


def shift(x: Float[Array, "s ..."], back: bool = False) -> Float[Array, "s ..."]:
    """What entered each step: x_0 = 0, x_1, .. x_{S-1}; with `back` the same from the other end."""
    zero = jnp.zeros_like(x[:1])
    return jnp.concatenate([x[1:], zero] if back else [zero, x[:-1]])


def conjugate_recurrence(
    G: Float[Array, "s ..."],
    Z: Float[Array, "s ..."],
    Y: Float[Array, "s ..."],
    driver: Driver = "sequential",
    layout: Layout = Rows,
) -> Float[Array, "s ..."]:
    """X_s = G_s'(X_{s+1} + Z_s)G_s + Y_s from the end, X_S = 0, with Z and Y symmetric.

    This is how derivatives of covariances travel.
    """
    mm, mm_now, transpose = layout.mm, layout.mm_now, layout.transpose
    if driver == "sequential":
        # products like contiguous operands: transposed once here rather than in every step
        transposed = transpose(G) if layout is Rows else None

        def step(X, inputs):
            G, G_t, Z, Y = inputs
            X = mm(mm_now(transpose(G) if G_t is None else G_t, X + Z), G) + Y
            return X, X

        return lax.scan(step, jnp.zeros(Y.shape[1:], Y.dtype), (G, transposed, Z, Y), reverse=True)[1]

    def combine(first, second):
        (G1, Y1), (G2, Y2) = first, second
        return mm(G1, G2), mm(transpose(G2), mm(Y1, G2)) + Y2

    return lax.associative_scan(combine, (G, mm(transpose(G), mm(Z, G)) + Y), reverse=True)[1]
