"""The covariance recursion of a stationary chain: information matrices of the messages in both directions.

A message with information matrix E arrives at a frame, the frame's own Λ is added, M = Λ + E, and the sum is pulled
back through the kernel z' = Kz + N(0, N) (see `messages`):

    E ← K'(M⁻¹ + N)⁻¹K  =  E₀ - C'SC,      S = (N⁻¹ + M)⁻¹,   C = N⁻¹K,   E₀ = K'C

With S = Z'Z and Y = ZC the step is one triangular factor of a matrix no less than the identity and two products,

    Z = chol(N⁻¹ + M)⁻¹,    E = E₀ - Y'Y,    G = C'S = Y'Z,    log|I + MN| = log|N⁻¹ + M| + log|N|

where G is the gain by which information vectors follow, e ← G(e + h).

Why this form. N may be close to singular, and the difference then loses digits; but what it loses is an error of E no
larger than the rounding error of N⁻¹ + M itself, and E is only ever used in I + Λ + E. In float32, with singular values
of A up to 0.999 and precisions up to 1e4, covariances come out right to about 1e-3 of the prior's. (In coordinates that
make N white, which look more natural, that rounding error is magnified by |N⁻¹|.)

If Λ is the same at all times the recursion converges, often within a few dozen steps; the sequential driver stops when
it has (to the last digits) and repeats the limit. The steps it takes depend on the chain, never more than T.

Derivative. dE = G dM G', dG = -G dM S and d log|..| = tr(S dM) give, with X_s = Ē_s + M̄_{s+1},

    M̄_s = G_s'X_s G_s + sym(l̄S - G'ḠS),     N̄⁻¹ = Σ M̄,     Ē₀ = Σ X,     C̄ = Σ (SḠ' - 2G'X)

a linear recursion with no factorisation in it. It serves both drivers.
"""

from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .layout import Layout, Rows, sum_to, to_rows
from .linalg import eye_like, inverse_factor, log_determinant, mm, sym, transpose
from .messages import parallel_information
from .recurrence import Driver, conjugate_recurrence, shift


class Kernel(NamedTuple):
    """What a step needs to know of z' = Kz + N(0, N), for each direction."""

    N_inv: Float[Array, "..."]
    C: Float[Array, "..."]
    E0: Float[Array, "..."]


def stationary_kernel(A: Float[Array, "k k"]) -> tuple[Kernel, Float[Array, " d"]]:
    """The reversed kernel (A', I - A'A) and the chain's own (A, I - AA'), each (2, k, k); and their log|N|."""
    K = jnp.stack([A.T, A])
    Z = inverse_factor(sym(eye_like(K) - mm(K, transpose(K))))
    N_inv = sym(mm(transpose(Z), Z))
    C = mm(N_inv, K)
    return Kernel(N_inv, C, sym(mm(transpose(K), C))), log_determinant(Z)


class Messages(NamedTuple):
    """Information matrices after each step, the gains that lead there, and log|N⁻¹ + M|."""

    E: Float[Array, "s ..."]
    G: Float[Array, "s ..."]
    logdet: Float[Array, "s ..."]


@partial(jax.custom_vjp, nondiff_argnums=(2, 3, 4))
def pull_back_stationary(
    kernel: Kernel, Lam: Float[Array, "l ..."], steps: int, driver: Driver, layout: Layout
) -> Messages:
    """All messages: start with none, add Λ_s, pull back, and so on. Λ may have one entry along time: always the same.

    In `Rows` the axes are (s, d, c, k, k): direction and sequence; in `Lanes` (s, k, k, n), both in one. The kernel has
    the same without s, with c = 1 in `Rows`.
    """
    return _evaluate(kernel, Lam, steps, driver, layout)[0]


def information_step(kernel: Kernel, M: Float[Array, "..."], layout: Layout = Rows):
    """The one step of which everything along a stationary chain is made: (E, G, log|N⁻¹ + M|) and Z."""
    E, Z, Y = _step(kernel, M, layout)
    return _messages(E, Z, Y, layout), Z


def _step(kernel, M, layout):
    """The part of it that the next step waits for."""
    Z = inverse_factor(kernel.N_inv + M, 1.0, layout)  # N ≤ I, so N⁻¹ ≥ I
    Y = layout.mm_now(Z, kernel.C)
    return kernel.E0 - sym(layout.mm(layout.transpose(Y), Y), layout), Z, Y


def _messages(E, Z, Y, layout):
    return Messages(E, layout.mm(layout.transpose(Y), Z), log_determinant(Z, layout))


def _evaluate(kernel, Lam, steps, driver, layout):
    """The messages, and the factors Z for the derivative."""
    if driver == "parallel":
        return information_step(kernel, _parallel(kernel, Lam, steps, layout), layout)
    if Lam.shape[0] == 1 and steps > 1:
        return _until_steady(kernel, Lam[0], steps, layout)

    def step(E, Lam):
        out = _step(kernel, E + Lam, layout)
        return out[0], out

    _, (E, Z, Y) = lax.scan(step, jnp.zeros(Lam.shape[1:], Lam.dtype), Lam)
    return _messages(E, Z, Y, layout), Z


def _parallel(kernel, Lam, steps, layout):
    """M_s at all steps by an associative scan, which is written for `Rows` and for kernels in the form (K, N)."""
    N_inv, C, Lam = (to_rows(layout, x) for x in (kernel.N_inv, kernel.C, Lam))
    Z = inverse_factor(N_inv, 1.0)
    N = sym(mm(transpose(Z), Z))
    shape = (steps, *Lam.shape[1:])
    M = parallel_information(*(jnp.broadcast_to(x, shape) for x in (mm(N, C), N, Lam)))
    return M if layout is Rows else jnp.moveaxis(M, -3, -1)


def _until_steady(kernel, Lam, steps, layout):
    """The recursion for constant Λ, up to the step at which it no longer changes."""
    tolerance = 4 * float(jnp.finfo(Lam.dtype).eps)

    def running(carry):
        s, _, change, _ = carry
        return (s < steps) & (change > tolerance)

    def step(carry):
        s, E, _, stored = carry
        M = kernel.N_inv + (Lam + E)
        messages, Z = information_step(kernel, Lam + E, layout)
        # each entry against its own scale: directions of little information converge last
        scale = lax.rsqrt(jnp.abs(jnp.einsum("...ii->...i", M)))
        change = jnp.max(jnp.abs(messages.E - E) * scale[..., :, None] * scale[..., None, :])
        new = (*messages, Z)
        stored = tuple(lax.dynamic_update_index_in_dim(old, x, s, 0) for old, x in zip(stored, new, strict=True))
        return s + 1, messages.E, change, stored

    shape = jnp.broadcast_shapes(kernel.C.shape, Lam.shape)
    E, empty = jnp.zeros(shape, Lam.dtype), jnp.zeros((steps, *shape), Lam.dtype)
    start = (jnp.zeros((), jnp.int32), E, jnp.full((), jnp.inf, Lam.dtype), (empty, empty, empty[..., 0, 0], empty))
    taken, _, _, stored = lax.while_loop(running, step, start)
    last = jnp.minimum(jnp.arange(steps, dtype=jnp.int32), taken - 1)
    *messages, Z = (x[last] for x in stored)
    return Messages(*messages), Z


def _forward(kernel, Lam, steps, driver, layout):
    messages, Z = _evaluate(kernel, Lam, steps, driver, layout)
    return messages, (kernel, Lam, messages.G, Z)


def _backward(steps, driver, layout, saved, cotangents):
    kernel, Lam, G, Z = saved
    E_bar, G_bar, l_bar = cotangents
    mm, transpose = layout.mm, layout.transpose
    S, G_t = mm(transpose(Z), Z), transpose(G)
    E_bar = sym(E_bar, layout)
    Y = sym(layout.expand(l_bar) * S - mm(mm(G_t, G_bar), S), layout)
    M_bar = conjugate_recurrence(G, E_bar, Y, driver, layout)
    X = E_bar + shift(M_bar, back=True)
    C_bar = mm(S, transpose(G_bar)) - 2 * mm(G_t, X)
    kernel_bar = Kernel(*(sum_to(x, like.shape) for x, like in zip((M_bar, C_bar, X), kernel, strict=True)))
    return kernel_bar, jnp.sum(M_bar, 0, keepdims=True) if Lam.shape[0] == 1 and steps > 1 else M_bar


pull_back_stationary.defvjp(_forward, _backward)
