"""Exact posterior marginals of a Gaussian chain with Gaussian potentials.

All inference takes the same steps: `total_potential` sums the potentials of all modalities, `infer` runs the messages,
and the functions here compute means and covariances from them.

Matrices (precisions, gains) do not depend on the data vectors. With shared precisions and no masks they are equal for
all sequences and are computed once (`covariance="shared"`), else once per sequence (`"general"`). Vectors follow from
linear recurrences. Both run along time sequentially or as an associative scan (`method`).
"""

from typing import Literal

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float

from .compiling import compiled
from .general import GeneralInference, infer_general, time_first
from .layout import Lanes, Layout, Rows, choose_layout, to_rows
from .linalg import eye_like, mm, spd_covariance, transpose
from .recurrence import Driver
from .stationary import StationaryInference, infer_stationary
from .types import Chain, GaussianChain, Posterior, Potentials, StationaryChain, as_potentials

Method = Literal["auto", "sequential", "parallel"]
Covariance = Literal["auto", "shared", "general"]
Inference = StationaryInference | GeneralInference


def choose_driver(method: Method) -> Driver:
    """Sequential on CPU, where steps are cheap; an associative scan on GPU and TPU, where launching them is not."""
    if method == "auto":
        return "sequential" if jax.default_backend() == "cpu" else "parallel"
    if method not in ("sequential", "parallel"):
        raise ValueError(f"method must be 'auto', 'sequential' or 'parallel', not {method!r}")
    return method


def shareable(chain: Chain, potentials: tuple[Potentials, ...]) -> bool:
    """Whether all sequences share their posterior covariances."""
    return not getattr(chain, "batched", False) and all(p.precision.shared and p.mask is None for p in potentials)


def total_potential(
    chain: Chain, potentials: tuple[Potentials, ...], covariance: Covariance = "auto"
) -> tuple[Float[Array, "t ..."], Float[Array, "l ..."], Layout]:
    """Sum the potentials of all modalities: (h, Λ), time first, and their layout.

    A shared precision has time and batch axes of length 1.
    """
    if covariance not in ("auto", "shared", "general"):
        raise ValueError(f"covariance must be 'auto', 'shared' or 'general', not {covariance!r}")
    can_share = shareable(chain, potentials)
    if covariance == "shared" and not can_share:
        raise ValueError(
            "covariance='shared' needs precisions that are the same for all sequences: no masks, no data-dependent "
            "precision and no chain per sequence; use covariance='auto'"
        )
    batch, _, k = potentials[0].shape
    h = jnp.moveaxis(_sum(p.masked_h() for p in potentials), 0, 1)
    if can_share and covariance != "general":
        return h, _sum(p.precision.dense() for p in potentials)[None, None], Rows
    layout = choose_layout(batch, k) if isinstance(chain, StationaryChain) else Rows
    if layout is Rows:
        return h, jnp.moveaxis(_sum(p.masked_precision() for p in potentials), 0, 1), Rows
    return jnp.swapaxes(h, -1, -2), _sum(precision_in_lanes(p) for p in potentials), Lanes


def precision_in_lanes(p: Potentials) -> Float[Array, "t k k b"]:
    """Precision matrices of each frame in `Lanes`, zero where masked."""
    batch, time, k = p.shape
    value = p.precision.value
    if p.precision.shared:
        L = jnp.broadcast_to(p.precision.dense()[None, ..., None], (time, k, k, batch))
    elif p.precision.diagonal:
        L = jnp.moveaxis(value, 0, -1)[..., None, :] * jnp.eye(k, dtype=value.dtype)[..., None]
    else:
        L = jnp.moveaxis(value, 0, -1)
    return L if p.mask is None else jnp.where(p.mask.T[:, None, None], L, 0)


def _sum(items):
    first, *rest = items
    return sum(rest, first)


def infer(
    chain: Chain,
    potentials: Potentials | tuple[Potentials, ...],
    *,
    method: Method = "auto",
    covariance: Covariance = "auto",
    directions: int = 2,
) -> Inference:
    """Run the messages in both directions, or only from the past with `directions=1` (the filter)."""
    h, Lam, layout = total_potential(chain, as_potentials(potentials), covariance)
    driver = choose_driver(method)
    if isinstance(chain, StationaryChain):
        return infer_stationary(chain, h, Lam, driver, directions, layout)
    return infer_general(chain, h, Lam, driver, directions)


@compiled("cross", "method", "covariance")
def smooth(
    chain: Chain,
    potentials: Potentials | tuple[Potentials, ...],
    *,
    cross: bool = False,
    method: Method = "auto",
    covariance: Covariance = "auto",
) -> Posterior:
    """Smoothed means and covariances, log Z and, on request, the lag-one covariances Cov(z_t, z_{t+1})."""
    i = infer(chain, potentials, method=method, covariance=covariance)
    if isinstance(i, StationaryInference):
        V = spd_covariance(i.precision(), i.layout)
        mean = i.layout.apply(V, i.information_vector())
        pairs = i.layout.mm(i.backward_gain(), V[1:]) if cross else None  # Cov(z_t, z_{t+1}) = J_t V_{t+1}
        return _posterior(i.log_z(mean), mean, V, pairs, i.layout)
    M = i.Lam + i.E
    mean, V = i.update(i.h + i.e, M)
    pairs = None
    if cross:
        assert isinstance(chain, GaussianChain)
        # with filtered covariance F and gain J = F A'P⁻¹:  J V_{t+1} = F A'(I + M P)⁻¹ = F A'(I - M V)_{t+1}
        F = i.update(i.h, i.Lam)[1][:-1]
        A = transpose(jnp.broadcast_to(time_first(chain).A, F.shape))
        pairs = mm(mm(F, A), eye_like(V) - mm(M[1:], V[1:]))
    return _posterior(i.log_z(mean), mean + i.prior_mean, V, pairs)


@compiled("method", "covariance")
def filter(
    chain: Chain,
    potentials: Potentials | tuple[Potentials, ...],
    *,
    method: Method = "auto",
    covariance: Covariance = "auto",
) -> Posterior:
    """Causal means and covariances: z_t given frames 1..t. `log_z` belongs to the whole sequence."""
    i = infer(chain, potentials, method=method, covariance=covariance, directions=1)
    if isinstance(i, StationaryInference):
        o = i.layout
        V = spd_covariance(i.precision(), o)
        g, e = i.information_vector(), i.e_past
        mean = o.apply(V, g)
        # each frame multiplies Z by the ratio of normalisers after and before it, ½g'Vg - ½e'V⁻e with V⁻ = (I + E)⁻¹
        predicted = o.apply(spd_covariance(o.eye_like(i.E_past) + i.E_past, o), e)
        quadratic = jnp.sum(o.inner(g, mean) - o.inner(e, predicted), 0)
        return _posterior(0.5 * quadratic - 0.5 * i.log_determinant(), mean, V, None, o)
    mean, V = i.update(i.h, i.Lam)
    # ½ (h - Λm)'V(h - Λm) + h'm - ½ m'Λm at each frame, with the predicted mean m
    r = i.h - Rows.apply(i.Lam, i.m)
    quadratic = jnp.sum(r * Rows.apply(V, r) + (i.h + r) * i.m, (0, 2))
    return _posterior(0.5 * quadratic - 0.5 * i.log_determinant() + i.offset, mean + i.prior_mean, V)


def _posterior(log_z, mean, cov, cross=None, layout: Layout = Rows) -> Posterior:
    """Convert from time first to batch first."""
    mean = jnp.moveaxis(mean, 1 if layout is Rows else 2, 0)
    cov, cross = (None if x is None else jnp.moveaxis(to_rows(layout, x), 1, 0) for x in (cov, cross))
    return Posterior(log_z, mean, cov, cross)  # pyright: ignore[reportArgumentType]
