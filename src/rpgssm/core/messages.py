"""Messages along a Gaussian chain: one step, a sequential and a parallel scan, one derivative.

Relative to the prior marginals of the chain, the posterior marginal is

    q(z_t) ∝ p(z_t) · α_t(z_t) · ψ_t(z_t) · β_t(z_t)

where ψ_t is the potential of frame t. The messages α (from the past) and β (from the future) are Gaussian potentials
exp(-½ z'Ez + e'z) with E positive semidefinite. One operation gives *both*: the pull-back of a potential through a
linear-Gaussian kernel. β uses the chain's own kernels z_{t+1} = A z_t + N(0, Q); α uses the time-reversed kernels
z_t = Ã z_{t+1} + N(0, Q̃). For the stationary chain the reversed kernel is (A', I - A'A).

So one recursion runs both directions in parallel. It inverts only I + (positive semidefinite), its covariances stay
positive semidefinite, and a missing frame is the zero potential.

One step. The potential (g, M) on y, pulled back through y = K x + N(0, N), is the potential (e, E) on x:

    M̃ = (M⁻¹ + N)⁻¹ = M (I + NM)⁻¹        E = K'M̃K
    W = (I + MN)⁻¹  = I - M̃N              e = K'W g =: G g
    log c = ½ g'Ñg - ½ log|I + MN|,       Ñ = NW = (N⁻¹ + M)⁻¹

The matrices do not depend on the data vectors g. So the recursion over E runs first (here), once for all sequences
that share covariances. The vectors follow from a linear recurrence with gains G (`recurrence`).

Derivative. dM̃ = W dM W' - M̃ dN M̃, dW = -dM̃ N - M̃ dN and d log|I+MN| = tr(Ñ dM) + tr(M̃ dN) give a *linear* backward
recursion without factorisations, M̄_s = G_s'(Ē_s + M̄_{s+1})G_s + Y_s. It is written out below, for both drivers.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .compiling import custom_vjp
from .layout import sum_to
from .linalg import cholesky_psd, eye_like, inverse_factor, log_determinant, mm, sym, tmm, transpose
from .recurrence import Driver, conjugate_recurrence, shift


class Kernels(NamedTuple):
    """Zero-mean kernels x ↦ Kx + N(0, N) of both directions, each in the order of its messages.

    The first axis has length 1 if all steps share the kernel, the third if all sequences do.
    """

    K: Float[Array, "s d c k k"]
    N: Float[Array, "s d c k k"]


def general_step(K, N, E, Lam):
    """One step for any kernel, also with singular or no noise: M = LL', M̃ = L(I + L'NL)⁻¹L'."""
    L = cholesky_psd(sym(E + Lam))
    Z = inverse_factor(eye_like(E) + sym(mm(tmm(L, N), L)), 1.0)
    F = mm(Z, transpose(L))
    Mt = sym(tmm(F, F))
    return sym(mm(tmm(K, Mt), K)), Mt, log_determinant(Z)


class Messages(NamedTuple):
    """Information matrices of the messages at steps 1..S, the gains G, M̃, and log|I + MN| of each step."""

    E: Float[Array, "s d c k k"]
    G: Float[Array, "s d c k k"]
    Mt: Float[Array, "s d c k k"]
    logdet: Float[Array, "s d c"]


@custom_vjp(2)
def pull_back(kernels: Kernels, Lam: Float[Array, "s d c k k"], driver: Driver = "sequential") -> Messages:
    """Matrices of all messages: start with no message; at each step add Λ_s and pull back through kernel s."""
    return _evaluate(kernels, Lam, driver)[0]


def _evaluate(kernels, Lam, driver):
    """The messages, and W for the derivative."""
    K, N = kernels
    steps = (Lam.shape[0], *jnp.broadcast_shapes(K.shape[1:], Lam.shape[1:]))
    K, N, Lam = (jnp.broadcast_to(x, steps) for x in (K, N, Lam))
    if driver == "sequential":

        def step(E, inputs):
            K, N, Lam = inputs
            E, Mt, logdet = general_step(K, N, E, Lam)
            return E, (E, Mt, logdet)

        _, (E, Mt, logdet) = lax.scan(step, jnp.zeros(Lam.shape[1:], Lam.dtype), (K, N, Lam))
    else:
        M = parallel_information(K, N, Lam)
        E, Mt, logdet = general_step(K, N, jnp.zeros_like(M), M)
    W = eye_like(Mt) - mm(Mt, N)
    return Messages(E, tmm(K, W), Mt, logdet), W


def parallel_information(K, N, Lam):
    """M_s = Λ_s + E_s at all steps by an associative scan.

    An element (K, N, J) is the map E ↦ J + K'(E⁻¹ + N)⁻¹K of an incoming message. The composition of two elements is
    an element. With (J₁⁻¹ + N₂)⁻¹ = M̃ and W = (I + J₁N₂)⁻¹ = I - M̃N₂:
        K = K₁W'K₂,   N = N₁ + K₁(N₂ - N₂M̃N₂)K₁',   J = J₂ + K₂'M̃K₂.
    """

    def combine(first, second):
        (K1, N1, J1), (K2, N2, J2) = first, second
        E, Mt, _ = general_step(K2, N2, jnp.zeros_like(J1), J1)
        W = eye_like(Mt) - mm(Mt, N2)
        return mm(mm(K1, transpose(W)), K2), sym(N1 + mm(mm(K1, mm(N2, W)), transpose(K1))), J2 + E

    # element s: kernel s-1, then adding Λ_s; the first element ignores its input
    start = jnp.zeros_like(Lam[:1])
    elements = jnp.concatenate([start, K[:-1]]), jnp.concatenate([start, N[:-1]]), Lam
    return lax.associative_scan(combine, elements)[2]


def _pull_back_fwd(kernels, Lam, driver):
    messages, W = _evaluate(kernels, Lam, driver)
    return messages, (kernels, Lam, messages, W)


def _pull_back_bwd(driver, saved, cotangents):
    (K, N), Lam, (_, G, Mt, _), W = saved
    E_bar, G_bar, Mt_bar, l_bar = cotangents
    E_bar, Mt_bar, l_bar = sym(E_bar), sym(Mt_bar), l_bar[..., None, None]
    Nt = mm(N, W)
    # Y = W'(M̃ cotangent)W - sym(G' Ḡ Ñ) + l̄ Ñ, then M̄_s = G_s'(Ē_s + M̄_{s+1})G_s + Y_s backwards in time
    Y = mm(tmm(W, Mt_bar), W) + sym(l_bar * Nt - mm(tmm(G, G_bar), Nt))
    M_bar = conjugate_recurrence(G, E_bar, Y, driver)
    Z = E_bar + shift(M_bar, back=True)
    # K̄ = 2M̃KZ + WḠ',   N̄ = -M̃(KZK' + M̃ cotangent - sym(KḠN))M̃ - sym(M̃KḠ) + l̄M̃
    KG = mm(K, G_bar)
    X = mm(mm(K, Z), transpose(K)) + Mt_bar - sym(mm(KG, N))
    K_total = _contract(Mt, 2 * mm(K, Z), K.shape) + _contract(W, transpose(G_bar), K.shape)
    N_total = sym(sum_to(l_bar * Mt, N.shape) - _contract(Mt, mm(X, Mt) + KG, N.shape))
    return Kernels(K_total, N_total), sum_to(M_bar, Lam.shape)


def _contract(a, b, shape):
    """Sum the products ab over the axes broadcast from `shape`, as one long matrix product where possible."""
    s, _, c, _, _ = shape
    full = jnp.broadcast_shapes(a.shape, b.shape)
    a, b = jnp.broadcast_to(a, full), jnp.broadcast_to(b, full)
    if s == 1 and c == 1 and full[0] * full[2] > 1:
        out = jnp.einsum("sdcij,sdcjk->dik", a, b, precision=lax.Precision.HIGHEST)
        return out[None, :, None]
    return sum_to(mm(a, b), shape)


pull_back.defvjp(_pull_back_fwd, _pull_back_bwd)
