"""Linear recurrences: the only things that run along time, apart from the covariance recursion itself.

Given the gains, the information vectors of all messages (and every backward pass) obey one of

    vectors:    x_{s+1} = G_s (x_s + a_s)              x_0 = 0
    matrices:   X_{s+1} = G_s X_s G_s' + Y_s           X_0 = 0

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


@partial(jax.custom_vjp, nondiff_argnums=(2,))
def linear_recurrence(
    G: Float[Array, "s d c k k"], a: Float[Array, "s d b k"], driver: Driver = "sequential"
) -> Float[Array, "s d b k"]:
    """x_1 .. x_S of x_{s+1} = G_s (x_s + a_s), x_0 = 0."""
    return _linear_recurrence(G, a, driver)


def _linear_recurrence(G, a, driver):
    if driver == "sequential":
        if G.shape[2] == 1:  # transposed once here rather than in every step
            Gt = transpose(G[:, :, 0])
            step = lambda x, ga: (y := mm(x + ga[1], ga[0]), y)  # noqa: E731
            return lax.scan(step, jnp.zeros_like(a[0]), (Gt, a))[1]
        step = lambda x, ga: (y := _apply(ga[0], x + ga[1]), y)  # noqa: E731
        return lax.scan(step, jnp.zeros_like(a[0]), (G, a))[1]

    def combine(first, second):
        # x → G₂(G₁x + g₁) + g₂
        (G1, g1), (G2, g2) = first, second
        return mm(G2, G1), _apply(G2, g1) + g2

    return lax.associative_scan(combine, (G, _apply(G, a)))[1]


def _linear_recurrence_fwd(G, a, driver):
    x = _linear_recurrence(G, a, driver)
    return x, (G, a, x)


def _linear_recurrence_bwd(driver, saved, x_bar):
    G, a, x = saved
    # With y_s = x_s + a_s:  ȳ_s = G_s'(x̄_s + ȳ_{s+1}): the same recurrence, backwards in time with transposed gains.
    y_bar = linear_recurrence(transpose(G)[::-1], x_bar[::-1], driver)[::-1]
    later = jnp.concatenate([y_bar[1:], jnp.zeros_like(y_bar[:1])])
    y = a + jnp.concatenate([jnp.zeros_like(x[:1]), x[:-1]])
    if G.shape[2] == 1:
        G_bar = mm(transpose(x_bar + later), y)[:, :, None]
    else:
        G_bar = (x_bar + later)[..., :, None] * y[..., None, :]
    return G_bar, y_bar


linear_recurrence.defvjp(_linear_recurrence_fwd, _linear_recurrence_bwd)


def conjugate_recurrence(
    G: Float[Array, "s d c k k"],
    Y: Float[Array, "s d c k k"],
    driver: Driver = "sequential",
) -> Float[Array, "s d c k k"]:
    """X_1 .. X_S of X_{s+1} = G_s X_s G_s' + Y_s, X_0 = 0, all X symmetric."""
    if driver == "sequential":

        def step(X, inputs):
            G, Y = inputs
            X = mm(mm(G, X), transpose(G)) + Y
            return X, X

        return lax.scan(step, jnp.zeros_like(Y[0]), (G, Y))[1]

    def combine(first, second):
        (G1, Y1), (G2, Y2) = first, second
        return mm(G2, G1), mm(mm(G2, Y1), transpose(G2)) + Y2

    return lax.associative_scan(combine, (G, Y))[1]
