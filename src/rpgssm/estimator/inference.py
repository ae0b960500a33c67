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
    return core.sample_posterior(key, model.chain(batch.time, batch.controls), model.potentials(batch), samples)


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
    """Forecast from the filtered marginal of each sequence's last frame. `future` are controls (n, steps + 1, ...)."""
    filtered = filter(model, batch)
    n = len(batch)
    last = jnp.full((n,), batch.time - 1) if batch.lengths is None else jnp.asarray(batch.lengths) - 1
    mean = filtered.mean[jnp.arange(n), last]
    cov = jnp.broadcast_to(filtered.cov, (n, *filtered.cov.shape[1:]))[jnp.arange(n), last]
    chain = model.chain(steps + 1, future)
    return core.forecast(chain, core.Moments(mean, cov), steps, samples=samples, key=key if samples else None)


def in_batches(function: Callable[..., Any], data: Sequences, *rest: Any, size: int | None = None) -> Any:
    """function(batch) for all sequences, results put together along the first axis, on the host.

    Results with a first axis of length 1 in a longer batch (shared covariances) are repeated, without a copy.
    """
    count = len(data)
    size = min(count, max(1, FRAMES // data.time) if size is None else size)
    parts = []
    for start in range(0, count, size):
        indices = np.arange(start, start + size)
        out = jax.device_get(function(data.take(np.minimum(indices, count - 1)), *rest))
        keep = min(size, count - start)
        parts.append(jax.tree.map(lambda x, keep=keep: _repeat(x, size)[:keep], out))
    return jax.tree.map(lambda *x: x[0] if len(x) == 1 else np.concatenate(x), *parts)


def _repeat(x: np.ndarray, size: int) -> np.ndarray:
    return np.broadcast_to(x, (size, *x.shape[1:])) if x.shape[0] == 1 and size > 1 else x


class Online:
    """Filtering one frame at a time, from one sensor stream: what `filter` gives, as the frames come in.

    `step(frame)` takes a frame (a mapping if there are several modalities), or None if it is missing, and returns the
    filtered mean (K,) and covariance (K, K). With a controlled prior pass the control that acted on the way *to* this
    frame, except at the first.
    """

    def __init__(self, model: RPGSSMModel, to_batch: Callable[[Any], Sequences], controlled: bool) -> None:
        self._model, self._to_batch, self._controlled = model, to_batch, controlled
        self._state: Any = None
        self.reset()

    def reset(self) -> None:
        """Forget all frames."""
        self._state = None
        self.n_frames_ = 0
        self.log_z_ = 0.0

    def step(self, frame: Any, control: Any = None) -> tuple[np.ndarray, np.ndarray]:
        batch = self._to_batch(frame)
        if self._controlled and self._state is not None and control is None:
            raise ValueError("the prior is controlled: pass the control that acted since the last frame as control=")
        u = self._control(control) if self._controlled else None
        self._state, out = _online(self._model, self._state, batch, u)
        self.n_frames_ += 1
        mean, cov, log_z = jax.device_get((out.mean[0], out.cov[0], out.log_z[0]))
        self.log_z_ = float(log_z)
        return mean, cov

    def _control(self, control: Any) -> Any:
        """The control of one step as the prior takes it, (1, 2, ...); before the first frame none has acted."""
        prior: Any = self._model.prior
        if prior.discrete:
            return jnp.full((1, 2), 0 if control is None else int(control), jnp.int32)
        size = prior.B.shape[1] if hasattr(prior, "B") else prior.control_size
        u = np.zeros(size) if control is None else np.asarray(control, np.float64).reshape(-1)
        if u.shape != (size,) or not np.isfinite(u).all():
            raise ValueError(f"control must be {size} finite numbers, not {control!r}")
        return jnp.broadcast_to(jnp.asarray(u, jnp.float32), (1, 2, size))


@eqx.filter_jit
def _online(model: RPGSSMModel, state: Any, batch: Sequences, control: Any):
    """Take in one frame. The state holds what was known after the last frame, before the transition to this one."""
    p = model.potentials(batch)
    h = sum((x.masked_h()[:, 0] for x in p[1:]), p[0].masked_h()[:, 0])
    Lam = sum((x.masked_precision()[:, 0] for x in p[1:]), p[0].masked_precision()[:, 0])
    chain = model.chain(2, control)
    if isinstance(chain, core.StationaryChain):
        return core.online_step(chain, core.online_start(chain) if state is None else state, h, Lam)
    # general chains: move to this frame by the given transition first, then take it in without moving on
    start = core.online_start(chain)
    if state is None:
        before = start
    else:
        zero = jnp.zeros_like(h), jnp.zeros_like(Lam)
        at_last = eqx.tree_at(lambda s: s.time, state, jnp.zeros_like(state.time))
        before, _ = core.online_step(chain, at_last, *zero)
    _, out = core.online_step(chain, before, h, Lam)
    after = core.OnlineState(out.mean, out.cov, out.log_z, before.time)
    return after, out
