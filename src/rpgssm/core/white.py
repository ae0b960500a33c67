"""The covariance recursion of a stationary chain, in coordinates in which the noise of the kernel is white.

In those coordinates (z = U y, noise covariance N = UU', B = U'K'U⁻ᵀ) the message recursion of `messages` reads

    M_0 = Λ_0,      S_s = (I + M_s)⁻¹,      M_{s+1} = Λ_{s+1} + B (I - S_s) B'

with one inverse, of a matrix that is at least the identity, and two products per step. Two drivers compute it:

* `sequential`: the recursion as it stands, a scan over time.
* `parallel`: an associative scan (`messages.parallel_information`).
If Λ is the same at all times the recursion converges, often within a few dozen steps; the sequential driver stops when
it has (to the last digits) and repeats the limit. The steps it takes depend on the chain, never more than T.

The derivative is the same for both: with G_s = B S_s,
    M̄_s = G_s' M̄_{s+1} G_s - S_s S̄_s S_s + l̄_s S_s,      Λ̄_s = M̄_s,      B̄ = 2 Σ_s M̄_{s+1} (B - G_s).
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .linalg import eye_like, inverse_factor, mm, sym, transpose
from .messages import parallel_information
from .recurrence import Driver, conjugate_recurrence


def left(B: Float[Array, "d i j"], X: Float[Array, "s d c j k"]) -> Float[Array, "s d c i k"]:
    """B X, one matrix per direction times very many."""
    return mm(B[:, None], X)


def sandwich(B: Float[Array, "d i j"], X: Float[Array, "s d c j j"]) -> Float[Array, "s d c i i"]:
    """B X B'."""
    return mm(mm(B[:, None], X), transpose(B)[:, None])


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def white_information(
    B: Float[Array, "d k k"], Lam: Float[Array, "s d c k k"], steps: int, driver: Driver
) -> tuple[Float[Array, "steps d c k k"], Float[Array, "steps d c"]]:
    """S_s and log|I + M_s| for all steps. Λ may have a time axis of length 1: the same at all times."""
    return _evaluate(B, Lam, steps, driver)


def white_step(M: Float[Array, "*n k k"]) -> tuple[Float[Array, "*n k k"], Float[Array, "*n"]]:
    """S = (I + M)⁻¹ and log|I + M|: the one step of which everything along a stationary chain is made.

    S is a Gram matrix: after rounding it is still the S of some positive semidefinite M, so the recursion that uses
    it stays stable. (The faster `spd_inverse` does not promise that.)
    """
    Z = inverse_factor(eye_like(M) + sym(M) + _rounding(M), 1.0)
    return sym(mm(transpose(Z), Z)), -2 * jnp.sum(jnp.log(jnp.diagonal(Z, axis1=-2, axis2=-1)), -1)


def _rounding(M: Float[Array, "*n k k"]) -> Float[Array, "*n k k"]:
    """Diagonal that covers the rounding errors made in transforming M, where they matter beside the identity.

    Precisions beyond 1e4 in some directions leave errors in the others that can exceed the identity in float32; for
    ordinary ones this is far below the last digit.
    """
    d = jnp.maximum(jnp.diagonal(M, axis1=-2, axis2=-1), 0)
    top = jnp.max(d, -1, keepdims=True)
    relative = 64 * float(jnp.finfo(M.dtype).eps) * top / (top + 1e4)
    return eye_like(M) * lax.stop_gradient(relative * d)[..., None]


def _evaluate(B, Lam, steps, driver):
    if driver == "parallel":
        shape = (steps, *Lam.shape[1:])
        K = jnp.broadcast_to(transpose(B)[:, None], shape)
        M = parallel_information(K, jnp.broadcast_to(eye_like(B), shape), jnp.broadcast_to(Lam, shape))
        return white_step(M)
    if Lam.shape[0] == 1 and steps > 1:
        return _until_steady(B, Lam[0], steps)

    def step(E, Lam):
        S, logdet = white_step(E + Lam)
        return sym(sandwich(B, (eye_like(S) - S)[None])[0]), (S, logdet)

    return lax.scan(step, jnp.zeros(Lam.shape[1:], Lam.dtype), Lam)[1]


def _until_steady(B, Lam, steps):
    """The recursion for constant Λ, up to the step at which it no longer changes."""
    tolerance = 4 * float(jnp.finfo(Lam.dtype).eps)

    def running(carry):
        s, _, change, *_ = carry
        return (s < steps) & (change > tolerance)

    def step(carry):
        s, M, _, S_all, logdet_all = carry
        S, logdet = white_step(M)
        M_next = Lam + sym(sandwich(B, (eye_like(S) - S)[None])[0])
        # each entry against its own scale: directions of little information converge last
        scale = lax.rsqrt(1 + jnp.maximum(jnp.diagonal(M, axis1=-2, axis2=-1), 0))
        change = jnp.max(jnp.abs(M_next - M) * scale[..., :, None] * scale[..., None, :])
        put = lax.dynamic_update_index_in_dim
        return s + 1, M_next, change, put(S_all, S, s, 0), put(logdet_all, logdet, s, 0)

    empty = jnp.zeros((steps, *Lam.shape), Lam.dtype)
    start = (jnp.zeros((), jnp.int32), Lam, jnp.full((), jnp.inf, Lam.dtype), empty, empty[..., 0, 0])
    taken, _, _, S, logdet = lax.while_loop(running, step, start)
    last = jnp.minimum(jnp.arange(steps, dtype=jnp.int32), taken - 1)
    return S[last], logdet[last]


def _forward(B, Lam, steps, driver):
    S, logdet = _evaluate(B, Lam, steps, driver)
    return (S, logdet), (B, Lam, S)


def _backward(steps, driver, saved, cotangents):
    B, Lam, S = saved
    S_bar, l_bar = cotangents
    G = left(B, S)
    Y = l_bar[..., None, None] * S - mm(mm(S, sym(S_bar)), S)
    scan = "parallel" if driver == "parallel" else "sequential"
    M_bar = conjugate_recurrence(G, Y, scan)
    B_bar = 2 * jnp.sum(mm(M_bar[1:], B[:, None] - G[:-1]), (0, 2))
    if Lam.shape[0] == 1 and steps > 1:
        M_bar = jnp.sum(M_bar, 0, keepdims=True)
    return B_bar, M_bar


white_information.defvjp(_forward, _backward)
