"""The terms of the free energy with shared covariances: a few products per frame, and their derivative.

With posterior information vectors g, information vectors h of the potentials, and for each frame V = Λ_q⁻¹,
S = (Λ_q + Λ)⁻¹ and S₀ = (Λ_p̄ + Λ)⁻¹, up to log-determinants that do not depend on the data,

    Φ(q)        = ½ g'Vg
    Φ(p̄ ⊕ f)    = ½ h'S₀h
    Φ(q ⊕ f')   = ½ g'Sg + g'Sh' + ½ h''Sh'
    mixture     = ½ g'Sg + log Σ_n' exp( g'Sh' + ½ h''(S - S₀)h' )

so one product gives the B×B logits of a frame. The backward pass needs the softmax weights w only:
    ∂ mixture/∂g = S(g + Σ w h'),   ∂/∂h' = Σ w S g + (Σ_n w)(S - S₀)h',   ∂/∂S = ½gg' + g(Σ w h')' + ½ (Σ_n w) h'h''.
"""

import jax.numpy as jnp
from jaxtyping import Array, Float

from .compiling import custom_vjp
from .linalg import mm, sym, transpose


@custom_vjp()
def shared_terms(
    g: Float[Array, "t b k"],
    h: Float[Array, "t b k"],
    V: Float[Array, "t k k"],
    S: Float[Array, "t k k"],
    S0: Float[Array, "r k k"],
) -> tuple[Float[Array, "t b"], Float[Array, "t b"], Float[Array, "t b"]]:
    """½g'Vg, ½h'S₀h and the mixture term of each frame and sequence. r = 1 for a constant S₀."""
    return _forward(g, h, V, S, S0)[0]


def _forward(g, h, V, S, S0):
    batch = g.shape[1]
    gh = jnp.concatenate([g, h], 1)
    both = mm(gh, S)
    gS, hS = both[:, :batch], both[:, batch:]
    gV, hS0 = mm(g, V), mm(h, S0[0]) if S0.shape[0] == 1 else mm(h, S0)
    v = hS - hS0
    logits = mm(gS, transpose(h)) + 0.5 * jnp.sum(h * v, -1)[:, None]
    top = jnp.max(logits, -1, keepdims=True)
    unnormalised = jnp.exp(logits - top)
    total = jnp.sum(unnormalised, -1, keepdims=True)
    mixture = 0.5 * jnp.sum(g * gS, -1) + (jnp.log(total) + top)[..., 0]
    terms = 0.5 * jnp.sum(g * gV, -1), 0.5 * jnp.sum(h * hS0, -1), mixture
    return terms, (g, h, S, S0, gV, hS0, v, unnormalised, total)


def _backward(saved, cotangents):
    g, h, S, S0, gV, hS0, v, unnormalised, total = saved
    a, b, c = (x[..., None] for x in cotangents)
    batch = g.shape[1]
    w = unnormalised * (c / total)
    H, Gw, weight = mm(w, h), mm(transpose(w), g), jnp.sum(w, 1)[..., None]
    left = jnp.concatenate([c * g + H, Gw], 1)
    through = mm(left, S)
    g_bar = a * gV + through[:, :batch]
    h_bar = b * hS0 + through[:, batch:] + weight * v
    hw = 0.5 * weight * h
    V_bar = mm(transpose(g), 0.5 * a * g)
    S_bar = mm(transpose(jnp.concatenate([g, h], 1)), jnp.concatenate([0.5 * c * g + H, hw], 1))
    rest = 0.5 * b * h - hw
    if S0.shape[0] == 1:
        k = h.shape[-1]
        S0_bar = mm(h.reshape(-1, k).T, rest.reshape(-1, k))[None]
    else:
        S0_bar = mm(transpose(h), rest)
    return g_bar, h_bar, sym(V_bar), sym(S_bar), sym(S0_bar)


shared_terms.defvjp(_forward, _backward)
