"""Forecasts beyond the last frame: means, covariances and sampled trajectories.

A forecast starts from the filtered (or smoothed) marginal of the last frame and follows the prior's transitions. A
general chain is given for the future: its first transition A_1, b_1, Q_1 leads from the last observed frame to the
first forecast frame. Its m1 and Q1 are not used.
"""

import equinox as eqx
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .compiling import compiled
from .general import time_first
from .linalg import mm, mv, sym, transpose
from .sampling import as_general, draw_path
from .types import Chain, Moments, StationaryChain


class Forecast(eqx.Module):
    """Marginals of the frames after the last one, and sampled trajectories or None.

    Covariances shared by all sequences have a batch axis of length 1.
    """

    mean: Float[Array, "batch steps k"]
    cov: Float[Array, "cbatch steps k k"]
    samples: Float[Array, "samples batch steps k"] | None = None


@compiled("steps", "samples")
def forecast(chain: Chain, last: Moments, steps: int, *, samples: int = 0, key: PRNGKeyArray | None = None) -> Forecast:
    """Forecast `steps` frames from the marginals `last` of the last frame: mean (batch, k), cov (batch or 1, k, k)."""
    future = as_general(chain, steps + 1) if isinstance(chain, StationaryChain) else chain
    transitions = future.A.shape[-3]
    if transitions < steps:
        raise ValueError(f"the chain given for the future has {transitions} transitions, fewer than steps = {steps}")
    if samples and key is None:
        raise ValueError("pass key= (e.g. jax.random.key(0)) to draw sampled trajectories")
    f = time_first(future)
    A, b, Q = f.A[:steps], f.b[:steps], f.Q[:steps]

    def step(carry, inputs):
        m, P = carry
        A, b, Q = inputs
        carry = mv(A, m) + b, sym(mm(mm(A, P), transpose(A)) + Q)
        return carry, carry

    lanes = max(last.cov.shape[0], A.shape[1])
    start = last.mean, jnp.broadcast_to(last.cov, (lanes, *last.cov.shape[1:]))
    _, (mean, cov) = lax.scan(step, start, (A, b, Q))
    drawn = None
    if samples and key is not None:
        drawn = jnp.moveaxis(draw_path(key, last, A, b, Q, samples)[1], 0, 2)
    return Forecast(jnp.moveaxis(mean, 0, 1), jnp.moveaxis(cov, 0, 1), drawn)
