"""The covariance recursion of a stationary chain: information matrices of the messages in both directions.

Each step adds the Λ of a frame to the information matrix E of the message, M = Λ + E, and pulls the sum back through
the kernel z' = Kz + N(0, N) (see `messages`):

    E ← K'(M⁻¹ + N)⁻¹K  =  E₀ - C'SC,      S = (N⁻¹ + M)⁻¹,   C = N⁻¹K,   E₀ = K'C

With S = Z'Z and Y = ZC the step is a triangular factor of a matrix ≥ I, and two products,

    Z = chol(N⁻¹ + M)⁻¹,    E = E₀ - Y'Y,    G = C'S = Y'Z,    log|I + MN| = log|N⁻¹ + M| + log|N|

where G is the gain of the information vectors, e ← G(e + h).

Why this form. If N is close to singular, the difference E₀ - Y'Y loses digits. But the error of E is no larger than the
rounding error of N⁻¹ + M itself, and E only enters as I + Λ + E. In float32, with singular values of A up to 0.999 and
precisions up to 1e4, the error of covariances is about 1e-3 of the prior's. (Coordinates that make N white would
magnify that rounding error by |N⁻¹|.)

For a constant Λ the recursion converges, often within a few dozen steps. The sequential driver stops there (to the last
digits) and repeats the limit.

Derivative. dE = G dM G', dG = -G dM S and d log|..| = tr(S dM) give, with X_s = Ē_s + M̄_{s+1},

    M̄_s = G_s'X_s G_s + sym(l̄S - G'ḠS),     N̄⁻¹ = Σ M̄,     Ē₀ = Σ X,     C̄ = Σ (SḠ' - 2G'X)

a linear recursion without factorisations, for both drivers.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .compiling import custom_vjp
from .layout import Layout, Rows, sum_to, to_rows
from .linalg import eye_like, inverse_factor, log_determinant, mm, sym, transpose
from .messages import parallel_information
from .recurrence import Driver, conjugate_recurrence, shift


class StationaryKernel(NamedTuple):
    """The kernel z' = Kz + N(0, N) of each direction in the form of the recursion: N⁻¹, C and E₀."""

    N_inv: Float[Array, "..."]
    C: Float[Array, "..."]
    E0: Float[Array, "..."]


def stationary_kernel(A: Float[Array, "k k"]) -> tuple[StationaryKernel, Float[Array, " d"]]:
    """The reversed kernel (A', I - A'A) and the chain's own (A, I - AA'), each (2, k, k); and their log|N|."""
    K = jnp.stack([A.T, A])
    Z = inverse_factor(sym(eye_like(K) - mm(K, transpose(K))))
    N_inv = sym(mm(transpose(Z), Z))
    C = mm(N_inv, K)
    return StationaryKernel(N_inv, C, sym(mm(transpose(K), C))), log_determinant(Z)


class StationaryMessages(NamedTuple):
    """Information matrices E after each step, the gains G, and log|N⁻¹ + M|."""

    E: Float[Array, "s ..."]
    G: Float[Array, "s ..."]
    logdet: Float[Array, "s ..."]


@custom_vjp(2, 3, 4)
def pull_back_stationary(
    kernel: StationaryKernel, Lam: Float[Array, "l ..."], steps: int, driver: Driver, layout: Layout
) -> StationaryMessages:
    """All messages: start with none; at each step add Λ_s and pull back. A constant Λ has one entry along time.

    In `Rows` the axes are (s, d, c, k, k), with d directions and c sequences; in `Lanes` (s, k, k, n), with both in n.
    The kernel has the same axes without s, and c = 1 in `Rows`.
    """
    return _evaluate(kernel, Lam, steps, driver, layout)[0]


def information_step(kernel: StationaryKernel, M: Float[Array, "..."], layout: Layout = Rows):
    """One step along a stationary chain: the message (E, G, log|N⁻¹ + M|), and Z."""
    E, Z, Y = _step(kernel, M, layout)
    return _messages(E, Z, Y, layout), Z


def _step(kernel, M, layout):
    """The part of a step that the next step needs first."""
    Z = inverse_factor(kernel.N_inv + M, 1.0, layout)  # N ≤ I, so N⁻¹ ≥ I
    Y = layout.mm_now(Z, kernel.C)
    return kernel.E0 - sym(layout.mm(layout.transpose(Y), Y), layout), Z, Y


def _messages(E, Z, Y, layout):
    return StationaryMessages(E, layout.mm(layout.transpose(Y), Z), log_determinant(Z, layout))


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
    """M_s at all steps by an associative scan, after conversion to `Rows` and to kernels (K, N)."""
    N_inv, C, Lam = (to_rows(layout, x) for x in (kernel.N_inv, kernel.C, Lam))
    Z = inverse_factor(N_inv, 1.0)
    N = sym(mm(transpose(Z), Z))
    shape = (steps, *Lam.shape[1:])
    M = parallel_information(*(jnp.broadcast_to(x, shape) for x in (mm(N, C), N, Lam)))
    return M if layout is Rows else jnp.moveaxis(M, -3, -1)


def _until_steady(kernel, Lam, steps, layout):
    """The recursion for constant Λ, up to the step where E no longer changes."""
    tolerance = 4 * float(jnp.finfo(Lam.dtype).eps)

    def running(carry):
        s, _, change, _ = carry
        return (s < steps) & (change > tolerance)

    def step(carry):
        s, E, _, stored = carry
        M = kernel.N_inv + (Lam + E)
        messages, Z = information_step(kernel, Lam + E, layout)
        # relative to each entry's own scale: directions with little information converge last
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
    return StationaryMessages(*messages), Z


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
    kernel_bar = StationaryKernel(*(sum_to(x, like.shape) for x, like in zip((M_bar, C_bar, X), kernel, strict=True)))
    return kernel_bar, jnp.sum(M_bar, 0, keepdims=True) if Lam.shape[0] == 1 and steps > 1 else M_bar


pull_back_stationary.defvjp(_forward, _backward)
