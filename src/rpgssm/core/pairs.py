"""Log-normalisers of all pairs, Φ(q_t^n ⊕ f_t^n') for every n, n', t, with data-dependent precisions.

These are B²T small systems, the dominant cost of the free energy with data-dependent precisions. Memory never holds
B²T·K² numbers: `linalg.sweep` computes the pairs in chunks of some thousand, and the backward pass repeats them. The
moments of the Gaussian are the derivative of its log-normaliser:

    Φ(h, Λ) = ½ h'Λ⁻¹h - ½ log|Λ|,      dΦ = μ'dh - ½ (Σ + μμ') : dΛ,      Σ = Λ⁻¹, μ = Σh.

A Gaussian (h, Λ) is stored as one augmented symmetric matrix [[Λ, h], [h', 0]]. Then ⊕ is a sum of matrices, and with
μ̃ = (μ, -1) the derivative above is -½(Σ + μ̃μ̃').
"""

from functools import partial

import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

from .compiling import custom_vjp
from .layout import Layout, Rows
from .linalg import sweep

CHUNK = 2**15  # numbers in the augmented matrices of a chunk, which should fit the cache
MIN_PAIRS = 96  # per chunk: with fewer the loop costs more than the arithmetic
MAX_FUSED_DIM = 16  # the largest K for which one fused kernel computes the value


def augment(h: Float[Array, "t ..."], Lam: Float[Array, "t ..."], layout: Layout) -> Float[Array, "m m t n"]:
    """[[Λ, h], [h', 0]] with the matrix axes first."""
    if layout is Rows:
        h, Lam = jnp.moveaxis(h, -1, 0), jnp.moveaxis(Lam, (-2, -1), (0, 1))
    else:
        h, Lam = jnp.moveaxis(h, 0, 1), jnp.moveaxis(Lam, 0, 2)
    top = jnp.concatenate([Lam, h[:, None]], 1)
    bottom = jnp.concatenate([h, jnp.zeros_like(h[:1])])
    return jnp.concatenate([top, bottom[None]])


def pair_log_normalisers(
    hq: Float[Array, "t ..."],
    Lq: Float[Array, "t ..."],
    hf: Float[Array, "t ..."],
    Lf: Float[Array, "t ..."],
    layout: Layout = Rows,
    lanes: int | None = None,
) -> Float[Array, "t b c"]:
    """Φ(q_t^b ⊕ f_t^c) for all t, b, c. Every sum of precisions must be positive definite.

    `lanes` is the number of pairs to compute in parallel; None fits the cache.
    """
    Wq, Wf = augment(hq, Lq, layout), augment(hf, Lf, layout)
    m, _, time, batch = Wq.shape
    frames = chunk_frames(time, batch, m - 1, lanes)
    chunks = -(-time // frames)
    pad = chunks * frames - time

    def prepare(W):
        # padding frames get the identity, which is not singular
        eye = jnp.eye(m, dtype=W.dtype).at[-1, -1].set(0)[..., None, None]
        W = jnp.concatenate([W, jnp.broadcast_to(eye, (m, m, pad, W.shape[-1]))], 2) if pad else W
        return jnp.moveaxis(W.reshape(m, m, chunks, frames, -1), 2, 0)

    phi = lax.map(lambda W: _pairs(*W), (prepare(Wq), prepare(Wf)))
    return phi.reshape(chunks * frames, batch, -1)[:time]


def chunk_frames(time: int, batch: int, latent: int, lanes: int | None = None) -> int:
    """Frames per chunk, for about `lanes` pairs in a chunk (one n' at a time)."""
    lanes = max(CHUNK // (latent + 1) ** 2, MIN_PAIRS) if lanes is None else lanes
    return max(1, min(time, -(-lanes // batch)))


@custom_vjp()
def _pairs(Wq: Float[Array, "m m t b"], Wf: Float[Array, "m m t c"]) -> Float[Array, "t b c"]:
    value = _fused_value if Wq.shape[0] - 1 <= MAX_FUSED_DIM else _swept_value
    phi = lax.map(partial(value, Wq), jnp.moveaxis(Wf, -1, 0))
    return jnp.moveaxis(phi, 0, -1)


def _fused_value(Wq, Wf):
    """Elimination written out element by element.

    There is one output per pair, so the compiler makes a single loop and keeps intermediate values in registers.
    Column j of the factor, unnormalised: c_j = w_j - Σ_{i<j} c_i c_i[j]/c_i[i]; the last row holds h.
    """
    m, info = Wq.shape[0], jnp.finfo(Wq.dtype)
    eps, tiny = float(info.eps), float(info.tiny) ** 0.5
    columns, reciprocals = [], []
    for j in range(m - 1):
        scaled = [c[j] * r for c, r in zip(columns, reciprocals, strict=True)]
        column = {}
        for i in range(j, m):
            w = Wq[i, j] + Wf[i, j][:, None]
            for c, s in zip(columns, scaled, strict=True):
                w = w - c[i] * s
            column[i] = w
        # no pivot below the rounding error of its diagonal entry (see linalg.sweep)
        smallest = jnp.maximum(0.5 * eps * jnp.abs(Wq[j, j] + Wf[j, j][:, None]), tiny)
        column[j] = jnp.maximum(column[j], smallest)
        columns.append(column)
        reciprocals.append(1 / column[j])
    quadratic = sum(c[m - 1] ** 2 * r for c, r in zip(columns, reciprocals, strict=True))
    return 0.5 * quadratic - 0.5 * sum(jnp.log(c[j]) for j, c in enumerate(columns))


def _swept_value(Wq, Wf):
    m, _, *lead = Wq.shape
    R, logdet = sweep((Wq + Wf[..., None]).reshape(m, m, -1), m - 1)
    return (-0.5 * R[-1, -1] - 0.5 * logdet).reshape(lead)


def _pairs_fwd(Wq, Wf):
    return _pairs(Wq, Wf), (Wq, Wf)


def _pairs_bwd(saved, phi_bar):
    Wq, Wf = saved
    m, _, *lead = Wq.shape

    def add_member(total, inputs):
        W, w = inputs  # of one n': augmented matrices (m, m, t) and cotangents (t, b)
        R, _ = sweep((Wq + W[..., None]).reshape(m, m, -1), m - 1)
        mu = R[-1].at[-1].set(-1)
        moments = jnp.where(_last(m), 0, R) + mu[:, None] * mu[None]
        weighted = (-0.5 * w.reshape(-1) * moments).reshape(m, m, *lead)
        return total + weighted, jnp.sum(weighted, -1)

    total, each = lax.scan(add_member, jnp.zeros_like(Wq), (jnp.moveaxis(Wf, -1, 0), jnp.moveaxis(phi_bar, -1, 0)))
    return total, jnp.moveaxis(each, 0, -1)


def _last(m):
    """A mask of the augmented row and column."""
    last = jnp.arange(m) == m - 1
    return (last[:, None] | last[None])[..., None]


_pairs.defvjp(_pairs_fwd, _pairs_bwd)
