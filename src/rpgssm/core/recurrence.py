"""Linear recurrences along time.

Given the gains, the information vectors of all messages, and all backward passes, obey one of

    vectors:    x_{s+1} = G_s (x_s + a_s) + c_s        x_0 = 0
    matrices:   X_s = G_s'(X_{s+1} + Z_s)G_s + Y_s     X_S = 0

Both run as a sequential scan (best on CPU) or an associative scan (best on GPU and TPU), in either layout. Time is the
first axis. In `Rows` all sequences may share the gains: then one matrix product serves the whole batch.
"""

from typing import Literal

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .compiling import custom_vjp
from .layout import Layout, Rows

Driver = Literal["sequential", "parallel"]


@custom_vjp(3, 4, 5)
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
        gains = layout.transpose(G[..., 0, :, :]) if shared else G  # transposed once, not in every step

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
    # With y_s = x_s + a_s:  ȳ_s = G_s'(x̄_s + ȳ_{s+1}), the same recurrence in reverse with transposed gains.
    y_bar = linear_recurrence(layout.transpose(G), x_bar, None, driver, layout, not reverse)
    lam = x_bar + shift(y_bar, not reverse)
    y = a + shift(x, reverse)
    return layout.outer(lam, y, G.shape[-3]), y_bar, None if no_offset else lam


linear_recurrence.defvjp(_forward, _backward)


def shift(x: Float[Array, "s ..."], back: bool = False) -> Float[Array, "s ..."]:
    """The input of each step, x_0 = 0, x_1, .. x_{S-1}; with `back`, x_2, .. x_S, 0."""
    zero = jnp.zeros_like(x[:1])
    return jnp.concatenate([x[1:], zero] if back else [zero, x[:-1]])


def conjugate_recurrence(
    G: Float[Array, "s ..."],
    Z: Float[Array, "s ..."],
    Y: Float[Array, "s ..."],
    driver: Driver = "sequential",
    layout: Layout = Rows,
) -> Float[Array, "s ..."]:
    """X_s = G_s'(X_{s+1} + Z_s)G_s + Y_s from the end, X_S = 0, with symmetric Z and Y.

    The derivatives of covariances obey this recurrence.
    """
    mm, mm_now, transpose = layout.mm, layout.mm_now, layout.transpose
    if driver == "sequential":
        # products are faster with contiguous operands: transpose once, not in every step
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
