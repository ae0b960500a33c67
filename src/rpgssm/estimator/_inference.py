"""Inference on data of any size: batches of sequences go through compiled functions, NumPy comes back.

All batches of a call have the same shape (the last one is filled up with repeats), so that each function is compiled
once per shape of data.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import PRNGKeyArray, PyTree

from rpgssm.data import Sequences
from rpgssm.data.repeated import concatenate, repeat
from rpgssm.data.sequences import AnyArray

FRAMES = 20_000  # that one batch of inference may hold, at the most


@eqx.filter_jit
def ask(model: PyTree, question: str, batch: Sequences) -> Any:
    """The answer of a model to a question about a batch, by the name of its method."""
    return getattr(model, question)(batch)


@eqx.filter_jit
def draw(model: PyTree, batch: Sequences, key: PRNGKeyArray | None, samples: int) -> Any:
    """Trajectories of the posterior (n, samples, t, k)."""
    return jnp.swapaxes(model.sample_posterior(key, batch, samples), 0, 1)


@eqx.filter_jit
def predict(
    model: PyTree, batch: Sequences, future: AnyArray | None, steps: int, samples: int, key: PRNGKeyArray | None
) -> Any:
    """Forecast: mean (n, steps, k), covariance or None, and samples (n, samples, steps, k) or None."""
    out = model.forecast(batch, steps, future, samples, key if samples else None)
    return out.mean, out.cov, None if out.samples is None else jnp.swapaxes(out.samples, 0, 1)


@eqx.filter_jit
def online_step(model: PyTree, state: PyTree, batch: Sequences, controls: AnyArray | None) -> Any:
    return model.online_step(state, batch, controls)


@eqx.filter_jit
def per_sequence(
    objective: Callable[..., Any], model: PyTree, batch: Sequences, key: PRNGKeyArray | None
) -> dict[str, Any]:
    """The terms of the objective that belong to one sequence each."""
    return objective(model, batch, key)[1]["per_sequence"]


@eqx.filter_jit
def decode(decoder: PyTree, latents: AnyArray | None) -> Any:
    return decoder.mean(latents)


def in_batches(
    function: Callable[..., Any],
    data: Sequences,
    *,
    size: int | None = None,
    along: AnyArray | None = None,
    key: PRNGKeyArray | None = None,
) -> Any:
    """function(batch, ...) for all sequences, results put together along the first axis, on the host.

    `along`, an array over sequences, and `key` are passed on if they are given, the first cut into the same batches and
    the second different in each. Results with a first axis of length 1 in a longer batch (shared covariances) are
    repeated, without a copy.
    """
    count = len(data)
    size = min(count, max(1, FRAMES // data.time) if size is None else size)
    parts = []
    for start in range(0, count, size):
        indices = np.minimum(np.arange(start, start + size), count - 1)
        rest = [] if along is None else [along[indices]]
        rest += [] if key is None else [jax.random.fold_in(key, start)]
        out = jax.device_get(function(data.take(indices), *rest))
        keep = min(size, count - start)
        parts.append(jax.tree.map(lambda x, keep=keep: repeat(x, size)[:keep], out))
    return jax.tree.map(concatenate, *parts)


def answers(model: PyTree, question: str, data: Sequences, size: int | None = None) -> Any:
    """The answers of a model to a question about all sequences."""
    return in_batches(partial(ask, model, question), data, size=size)


def mean_of_compared(function: Callable[..., Any], data: Sequences, batch_size: int) -> float:
    """Σ value / Σ count over all sequences, where both depend on the others of the batch.

    function(batch, index) gives (values, counts) of its sequences. All batches have the same size: the last one reaches
    back, and of what it shares with the one before only the first is counted.
    """
    size = min(batch_size, len(data))
    total = count = 0.0
    for start in range(0, len(data), size):
        first = min(start, len(data) - size)
        values, counts = jax.device_get(function(data.take(np.arange(first, first + size)), start))
        total, count = total + values[start - first :].sum(), count + counts[start - first :].sum()
    return float(total / max(count, 1))
