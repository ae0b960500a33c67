"""The covariance recursion of a stationary chain, in coordinates in which the noise of the kernel is white.

In those coordinates (z = U y, noise covariance N = UU', B = U'K'U⁻ᵀ) the message recursion of `messages` reads

    M_0 = Λ_0,      S_s = (I + M_s)⁻¹,      M_{s+1} = Λ_{s+1} + B (I - S_s) B'

with one inverse, of a matrix that is at least the identity, and two products per step. Three drivers compute it:

* `sequential`: the recursion as it stands, a scan over time.
* `parallel`: an associative scan (`messages.parallel_information`).
* `blocked`: if Λ is the same at all times, n steps are one fixed map φ_n(M) = J_n + K_n'(M⁻¹ + N_n)⁻¹K_n. It is built
  in n ≈ √T sequential steps, which also give the first n matrices; applied to those n at once it gives the next n, and so
  on: 2√T small steps instead of T, and many matrices in each.

The derivative is the same for all: with G_s = B S_s,
    M̄_s = G_s' M̄_{s+1} G_s - S_s S̄_s S_s + l̄_s S_s,      Λ̄_s = M̄_s,      B̄ = 2 Σ_s M̄_{s+1} (B - G_s).
"""

from functools import partial
from typing import Literal

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .linalg import eye_like, mm, spd_inverse, sym, transpose
from .messages import parallel_information
from .recurrence import conjugate_recurrence

WhiteDriver = Literal["sequential", "parallel", "blocked"]


def left(B: Float[Array, "d i j"], X: Float[Array, "s d c j k"]) -> Float[Array, "s d c i k"]:
    """B X, one matrix per direction times very many: a few large products instead of many small ones."""
    return jnp.einsum("dij,sdcjk->sdcik", B, X, precision=lax.Precision.HIGHEST)


def sandwich(B: Float[Array, "d i j"], X: Float[Array, "s d c j j"]) -> Float[Array, "s d c i i"]:
    """B X B' for symmetric X."""
    return left(B, transpose(left(B, X)))


@partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def white_information(
    B: Float[Array, "d k k"], Lam: Float[Array, "s d c k k"], steps: int, driver: WhiteDriver
) -> tuple[Float[Array, "steps d c k k"], Float[Array, "steps d c"]]:
    """S_s and log|I + M_s| for all steps. Λ may have a time axis of length 1: the same at all times."""
    return _evaluate(B, Lam, steps, driver)


def white_step(M: Float[Array, "*n k k"]) -> tuple[Float[Array, "*n k k"], Float[Array, "*n"]]:
    """S = (I + M)⁻¹ and log|I + M|: the one step of which everything along a stationary chain is made."""
    return spd_inverse(eye_like(M) + M, 1.0)


def _evaluate(B, Lam, steps, driver):
    if driver == "sequential":
        constant = Lam[0] if Lam.shape[0] == 1 else None

        def step(E, Lam_s):
            S, logdet = white_step(E + (Lam_s if constant is None else constant))
            return sym(sandwich(B, (eye_like(S) - S)[None])[0]), (S, logdet)

        return lax.scan(step, jnp.zeros_like(Lam[0]), Lam if constant is None else None, length=steps)[1]
    if driver == "parallel":
        shape = (steps, *Lam.shape[1:])
        K = jnp.broadcast_to(transpose(B)[:, None], shape)
        M = parallel_information(K, jnp.broadcast_to(eye_like(B), shape), jnp.broadcast_to(Lam, shape))
    else:
        M = _blocked(B, Lam[0], steps)
    return white_step(M)


def _blocked(B, Lam, steps):
    """M_0 .. M_{steps-1} for constant Λ, block by block."""
    n = max(1, int(steps**0.5))
    Bt = transpose(B)[:, None]

    def build(carry, _):
        # φ_{s+1} = φ_1 ∘ φ_s:  K → K S B',  N → N + K S K',  where S belongs to J_s = M_{s-1}
        M, K, N, S = carry
        KS = mm(K, S)
        S_next, _ = white_step(M)
        M_next = Lam + sym(mm(mm(transpose(Bt), eye_like(M) - S_next), Bt))
        return (M_next, mm(KS, Bt), N + sym(mm(KS, transpose(K))), S_next), M

    # before any step φ_0 is the identity map, for which K = I, N = 0 and S (no message at all) = I
    eye = jnp.broadcast_to(eye_like(Lam), Lam.shape)
    (_, K, N, _), first = lax.scan(build, (Lam, eye, jnp.zeros_like(Lam), eye), None, length=n)
    J = first[-1]
    U = jnp.linalg.cholesky(N, symmetrize_input=False)
    R = lax.linalg.triangular_solve(U, K, left_side=True, lower=True)

    def advance(M, _):
        S, _ = white_step(sandwich(transpose(U)[:, 0], M))
        M = J + sym(sandwich(transpose(R)[:, 0], eye_like(S) - S))
        return M, M

    _, later = lax.scan(advance, first, None, length=-(-steps // n) - 1)
    return jnp.concatenate([first, later.reshape(-1, *first.shape[1:])])[:steps]


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
    # Σ_s M̄_{s+1} (B - G_s); one long product over steps and sequences
    B_bar = 2 * jnp.einsum("sdcij,sdcjk->dik", M_bar[1:], B[:, None] - G[:-1], precision=lax.Precision.HIGHEST)
    if Lam.shape[0] == 1 and steps > 1:
        M_bar = jnp.sum(M_bar, 0, keepdims=True)
    return B_bar, M_bar


white_information.defvjp(_forward, _backward)
