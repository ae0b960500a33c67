"""The canonical form of a stable linear chain, and the projection of a transition matrix to it.

The library's prior is the stationary chain z_t | z_{t-1} ~ N(A z_{t-1}, I - AA') with marginals N(0, I). I - AA' is a
covariance if the singular values of A are below 1, which a projection after every optimiser step ensures
(`project_singular_values`).

This form is general (Lemma 1). An invertible affine map u = Gz + c gives any stable chain zero bias and the stationary
law N(0, I), and emissions that undo the map leave the distribution of data unchanged. `canonical_form` computes the
map on the host in float64, not under `jit`.
"""

from typing import Literal

import equinox as eqx
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from .checks import check_array, check_covariance, check_finite, check_shape
from .linalg import eye_like, mm, mv
from .types import GaussianChain


def project_singular_values(
    A: Float[Array, "*lead k k"], maximum: float = 1 - 1e-3, mode: Literal["clip", "scale"] = "clip"
) -> Float[Array, "*lead k k"]:
    """Bring the singular values of A to at most `maximum`; a matrix within the bound returns bit for bit.

    `clip` lowers only the singular values above the bound (the closest such matrix to A); `scale` multiplies A by one
    number. A second projection changes nothing, also after rounding. Apply it between optimiser steps, not inside the
    objective: equal singular values have no derivative.
    """
    if mode not in ("clip", "scale"):
        raise ValueError(f"mode must be 'clip' or 'scale', not {mode!r}")
    # Rounding moves the largest singular value of a product USV' by up to about 5√k eps (measured, k up to 64). Aim a
    # little lower, so that the result keeps the bound and passes the test at the end.
    target = maximum * (1 - 8 * A.shape[-1] ** 0.5 * float(jnp.finfo(A.dtype).eps))
    if mode == "scale":
        s = jnp.linalg.svd(A, compute_uv=False)
        projected = A * (target / s[..., :1, None])
    else:
        U, s, Vt = jnp.linalg.svd(A, full_matrices=False)
        projected = mm(U * jnp.minimum(s, target)[..., None, :], Vt)
    return jnp.where(s[..., :1, None] > maximum, projected, A)


class CanonicalForm(eqx.Module):
    """The chain u_1 ~ N(m1, Q1), u_{t+1} | u_t ~ N(A u_t, I - AA') of the variables u = Gz + c.

    Its stationary law is N(0, I). It starts in that law if the given chain started in its own (m1 = 0 and Q1 = I). The
    singular values of A are at most 1, and below 1 for a positive definite Q of the given chain.
    """

    m1: Float[Array, " k"]
    Q1: Float[Array, "k k"]
    A: Float[Array, "k k"]
    G: Float[Array, "k k"]
    G_inverse: Float[Array, "k k"]
    c: Float[Array, " k"]

    @property
    def b(self) -> Float[Array, " k"]:
        """The bias, always zero."""
        return jnp.zeros_like(self.m1)

    @property
    def Q(self) -> Float[Array, "k k"]:
        """I - AA' = GQG' with the Q of the given chain."""
        return eye_like(self.A) - mm(self.A, self.A.T)

    def to_canonical(self, z: Float[Array, "*lead k"]) -> Float[Array, "*lead k"]:
        """u = Gz + c."""
        return mv(self.G, z) + jnp.broadcast_to(self.c, z.shape)

    def from_canonical(self, u: Float[Array, "*lead k"]) -> Float[Array, "*lead k"]:
        """z = G⁻¹(u - c). An emission f(z) becomes f(from_canonical(u))."""
        return mv(self.G_inverse, u - jnp.broadcast_to(self.c, u.shape))

    def chain(self, length: int) -> GaussianChain:
        """The canonical chain of `length` frames, with the initial law (m1, Q1)."""
        return GaussianChain.time_invariant(self.m1, self.Q1, self.A, self.b, self.Q, length)


def canonical_form(
    m1: Float[Array, " k"],
    Q1: Float[Array, "k k"],
    A: Float[Array, "k k"],
    b: Float[Array, " k"],
    Q: Float[Array, "k k"],
) -> CanonicalForm:
    """Bring z_1 ~ N(m1, Q1), z_{t+1} | z_t ~ N(A z_t + b, Q) to canonical form (Lemma 1).

    Raises ValueError if the chain is not stable or its stationary covariance is singular. G is unique up to a rotation
    from the left: its rows here are the principal axes of the stationary law, by decreasing variance, each with its
    largest entry positive.
    """
    latent = ("latent", m1.shape[-1])
    for name, x, ndim in [("m1", m1, 1), ("Q1", Q1, 2), ("A", A, 2), ("b", b, 1), ("Q", Q, 2)]:
        check_array(name, x)
        check_shape(name, x, (latent,) * ndim)
        check_finite(name, x)
    check_covariance("Q1", Q1)
    check_covariance("Q", Q)

    dtype = A.dtype
    m1_, Q1_, A_, b_, Q_ = (np.asarray(x, np.float64) for x in (m1, Q1, A, b, Q))
    radius = np.abs(np.linalg.eigvals(A_)).max()
    if radius >= 1:
        raise ValueError(
            f"A has spectral radius {radius:.6g}, so the chain has no stationary law: a stable chain needs a radius "
            "below 1 (shrink A, for example with project_singular_values)"
        )
    variances, U = np.linalg.eigh(_stationary_covariance(A_, Q_))
    variances, U = variances[::-1], U[:, ::-1]
    if variances[-1] <= len(A_) * float(jnp.finfo(dtype).eps) * variances[0]:
        raise ValueError(
            f"the stationary covariance is singular: its smallest eigenvalue is {variances[-1]:.3g} (the largest is "
            f"{variances[0]:.3g}), so some direction of the latent space never moves; remove that direction, or add a "
            "small multiple of the identity to Q"
        )
    U = U * np.sign(np.take_along_axis(U, np.abs(U).argmax(0)[None], 0))
    G, G_inverse = (U / np.sqrt(variances)).T, U * np.sqrt(variances)
    # u_{t+1} = Gz_{t+1} + c = GAG⁻¹(u_t - c) + Gb + c + noise has the bias (I - GAG⁻¹)c + Gb, which vanishes for
    #   c = (GAG⁻¹ - I)⁻¹Gb = -G(I - A)⁻¹b = -Gm∞
    # (the lemma's formula, sign included), so the map subtracts the stationary mean. And GQ∞G' = I turns Q∞ = AQ∞A' + Q
    # into GQG' = I - GAG⁻¹(GAG⁻¹)'.
    c = -G @ np.linalg.solve(np.eye(len(A_)) - A_, b_)
    parts = (G @ m1_ + c, _sym(G @ Q1_ @ G.T), G @ A_ @ G_inverse, G, G_inverse, c)
    return CanonicalForm(*(jnp.asarray(x, dtype) for x in parts))


def _stationary_covariance(A: Float[np.ndarray, "k k"], Q: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    """Q∞ = Σ_i AⁱQA'ⁱ, the solution of Q∞ = AQ∞A' + Q, by doubling the number of terms.

    A sum of positive semidefinite terms stays positive semidefinite. (Solvers that map the equation to the continuous
    one can fail for an eigenvalue of A close to -1, the pole of that map.)
    """
    total = Q
    for _ in range(64):  # 2⁶⁴ terms: enough for any spectral radius below 1 in float64
        # S is the sum of the first n terms and A holds Aⁿ: the next n terms are AⁿSA'ⁿ
        more = A @ total @ A.T
        total, A = _sym(total + more), A @ A
        if np.all(np.diag(more) <= np.finfo(np.float64).eps * np.diag(total)):
            break
    return total


def _sym(X: Float[np.ndarray, "k k"]) -> Float[np.ndarray, "k k"]:
    return 0.5 * (X + X.T)
