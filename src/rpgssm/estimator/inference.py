"""Inference on data of any size: batches of sequences go through compiled functions, NumPy comes back.

Most models are a chain with potentials (`chain`, `potentials`), and the core does the rest. A model that is not has
methods of its own: `smooth`, `filter` and `forecast` as far as they exist, and `sample_posterior`.

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

from rpgssm import core
from rpgssm.data import Modality, Sequences
from rpgssm.data.shared import joined, spread
from rpgssm.models.widening import recognise

FRAMES = 20_000  # that one batch of inference may hold, at the most


@eqx.filter_jit
def smooth(model: Any, batch: Sequences):
    if hasattr(model, "smooth"):
        return model.smooth(batch)
    return core.smooth(model.chain(batch.time, batch.controls), model.potentials(batch))


@eqx.filter_jit
def filter(model: Any, batch: Sequences):
    if hasattr(model, "filter"):
        return model.filter(batch)
    return core.filter(model.chain(batch.time, batch.controls), model.potentials(batch))


@eqx.filter_jit
def posterior_samples(model: Any, batch: Sequences, key, samples: int):
    """Trajectories (n, samples, t, k)."""
    if hasattr(model, "sample_posterior"):
        return jnp.swapaxes(model.sample_posterior(key, batch, samples), 0, 1)
    drawn = core.sample_posterior(key, model.chain(batch.time, batch.controls), model.potentials(batch), samples)
    return jnp.swapaxes(drawn, 0, 1)


@eqx.filter_jit
def per_sequence(objective: Callable[..., Any], model: Any, batch: Sequences, key: Any) -> dict[str, Any]:
    """The terms of the objective that belong to one sequence each."""
    return objective(model, batch, key)[1]["per_sequence"]


@eqx.filter_jit
def predict(model: Any, batch: Sequences, future: Any, steps: int, samples: int, key):
    """Forecast from the filtered marginal of each sequence's last frame. `future` are controls (n, steps + 1, ...).

    Mean (n, steps, k), covariance, and samples (n, samples, steps, k) or None.
    """
    if hasattr(model, "forecast"):
        out = model.forecast(batch, steps, samples=samples, key=key if samples else None)
    else:
        # of the last frame, all that is known is what came before it: smoothing gives the same as filtering
        marginals = (smooth if hasattr(model, "smooth") else filter)(model, batch)
        chain = model.chain(steps + 1, future)
        out = core.forecast(chain, _of_last(marginals, batch), steps, samples=samples, key=key if samples else None)
    return out.mean, out.cov, None if out.samples is None else jnp.swapaxes(out.samples, 0, 1)


def _of_last(marginals: Any, batch: Sequences) -> core.Moments:
    """The marginals of the last frame of each sequence."""
    n = len(batch)
    last = jnp.full((n,), batch.time - 1) if batch.lengths is None else jnp.asarray(batch.lengths) - 1
    cov = jnp.broadcast_to(marginals.cov, (n, *marginals.cov.shape[1:]))
    return core.Moments(marginals.mean[jnp.arange(n), last], cov[jnp.arange(n), last])


@eqx.filter_jit
def decode(decoder: Any, latents: Any):
    return decoder.mean(latents)


def in_batches(
    function: Callable[..., Any],
    data: Sequences,
    *,
    size: int | None = None,
    along: Any = None,
    key: Any = None,
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
        parts.append(jax.tree.map(lambda x, keep=keep: spread(x, size)[:keep], out))
    return jax.tree.map(joined, *parts)


def recognised(model: Any, data: Sequences) -> Sequences:
    """The same sequences with what each frame alone says of the latents in the place of frames."""
    means = in_batches(partial(recognise, model), data, size=max(1, FRAMES // (4 * data.time)))
    modalities = {name: Modality(means[name], m.mask) for name, m in data.modalities.items()}
    return Sequences(modalities, data.controls, data.lengths)


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
