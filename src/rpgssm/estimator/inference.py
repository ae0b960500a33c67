"""Inference on data of any size: batches of sequences go through compiled functions, NumPy comes back.

All batches of a call have the same shape (the last one is filled up with repeats), so that each function is compiled
once per shape of data.
"""

from collections.abc import Callable
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm import core
from rpgssm.data import Sequences
from rpgssm.models.rpgssm import RPGSSMModel, objective

FRAMES = 20_000  # that one batch of inference may hold, at the most


@eqx.filter_jit
def smooth(model: RPGSSMModel, batch: Sequences):
    return core.smooth(model.chain(batch.time, batch.controls), model.potentials(batch))


@eqx.filter_jit
def filter(model: RPGSSMModel, batch: Sequences):
    return core.filter(model.chain(batch.time, batch.controls), model.potentials(batch))


@eqx.filter_jit
def posterior_samples(model: RPGSSMModel, batch: Sequences, key, samples: int):
    """Trajectories (n, samples, t, k)."""
    drawn = core.sample_posterior(key, model.chain(batch.time, batch.controls), model.potentials(batch), samples)
    return jnp.swapaxes(drawn, 0, 1)


@eqx.filter_jit
def per_sequence(model: RPGSSMModel, batch: Sequences):
    """The free energy of each sequence, and how many observations it has."""
    _, info = objective(model, batch)
    shape = (len(batch), batch.time)
    masks = (m.mask for m in batch.modalities.values())
    observed = sum(jnp.sum(jnp.ones(shape, bool) if m is None else m, 1) for m in masks)
    return info["per_sequence"]["free_energy"], observed


@eqx.filter_jit
def predict(model: RPGSSMModel, batch: Sequences, future: Any, steps: int, samples: int, key):
    """Forecast from the filtered marginal of each sequence's last frame. `future` are controls (n, steps + 1, ...).

    Mean (n, steps, k), covariance, and samples (n, samples, steps, k) or None.
    """
    filtered = filter(model, batch)
    n = len(batch)
    last = jnp.full((n,), batch.time - 1) if batch.lengths is None else jnp.asarray(batch.lengths) - 1
    mean = filtered.mean[jnp.arange(n), last]
    cov = jnp.broadcast_to(filtered.cov, (n, *filtered.cov.shape[1:]))[jnp.arange(n), last]
    chain = model.chain(steps + 1, future)
    out = core.forecast(chain, core.Moments(mean, cov), steps, samples=samples, key=key if samples else None)
    return out.mean, out.cov, None if out.samples is None else jnp.swapaxes(out.samples, 0, 1)


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
        parts.append(jax.tree.map(lambda x, keep=keep: _repeat(x, size)[:keep], out))
    return jax.tree.map(lambda *x: x[0] if len(x) == 1 else np.concatenate(x), *parts)


def _repeat(x: np.ndarray, size: int) -> np.ndarray:
    return np.broadcast_to(x, (size, *x.shape[1:])) if x.shape[0] == 1 and size > 1 else x
