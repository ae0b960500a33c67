"""Beyond the last frame: means, covariances and sampled trajectories of the future.

A forecast starts from the filtered (or smoothed) marginal of the last frame and follows the prior's transitions. For a
general chain the transitions to follow are those of a chain given for the future: A_1, b_1, Q_1 lead from the last
observed frame to the first forecast one, and so on; its m1 and Q1 are not used.
"""

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float, PRNGKeyArray

from .compiling import compiled
from .general import TimeFirst, time_first
from .linalg import cholesky_psd, mm, mv, sym, transpose
from .sampling import as_general
from .types import Chain, Moments, StationaryChain


class Forecast(eqx.Module):
    """Marginals of the frames after the last one, and trajectories if they were asked for.

    The covariances' batch axis has length 1 if they are the same for all sequences.
    """

    mean: Float[Array, "batch steps k"]
    cov: Float[Array, "cbatch steps k k"]
    samples: Float[Array, "samples batch steps k"] | None = None


@compiled("steps", "samples")
def forecast(
    chain: Chain,
    last: Moments,
    steps: int,
    *,
    samples: int = 0,
    key: PRNGKeyArray | None = None,
) -> Forecast:
    """Predict `steps` frames from the marginals `last` of the last frame: mean (batch, k), cov (batch or 1, k, k)."""
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
        drawn = _draw(key, last, TimeFirst(f.m1, f.Q1, A, b, Q), samples)
    return Forecast(jnp.moveaxis(mean, 0, 1), jnp.moveaxis(cov, 0, 1), drawn)


def _draw(key, last, f, samples):
    """Trajectories: a draw of the last frame, followed by draws of each transition."""
    steps, k = f.A.shape[0], f.A.shape[-1]
    batch = last.mean.shape[0]
    noise = jax.random.normal(key, (steps + 1, samples, batch, k), last.mean.dtype)
    z = last.mean + mv(cholesky_psd(last.cov), noise[0])

    def step(z, inputs):
        A, b, L, eps = inputs
        z = mv(A, z) + b + mv(L, eps)
        return z, z

    _, path = lax.scan(step, z, (f.A, f.b, cholesky_psd(f.Q), noise[1:]))
    return jnp.moveaxis(path, 0, 2)
