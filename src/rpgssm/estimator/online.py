"""Filtering as frames come in, one at a time."""

from collections.abc import Mapping
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm import core
from rpgssm.data import Modality, Sequences
from rpgssm.models.rpgssm import RPGSSMModel


class Online:
    """Filtering one frame at a time, from one sensor stream: what `filter` gives, as the frames come in.

    `step(frame)` takes a frame (a mapping if there are several modalities), or None if it is missing, and returns the
    filtered mean (K,) and covariance (K, K). With a controlled prior pass the control that acted on the way *to* this
    frame, except at the first. `n_frames_` and `log_z_` say how many frames were taken in, and their log Z.
    """

    def __init__(
        self,
        model: RPGSSMModel,
        frame_shapes: Mapping[str, tuple[int, ...]],
        control_dim: int | None = None,
        n_control_values: int | None = None,
    ) -> None:
        self._model, self._shapes = model, dict(frame_shapes)
        self._dim, self._values = control_dim, n_control_values
        self.reset()

    def reset(self) -> None:
        """Forget all frames."""
        self._state: Any = None
        self.n_frames_ = 0
        self.log_z_ = 0.0

    def step(self, frame: Any, control: Any = None) -> tuple[np.ndarray, np.ndarray]:
        """Take in the next frame."""
        batch, u = one_frame(frame, self._shapes), self._control(control)
        self._state, out = _online(self._model, self._state, batch, u)
        self.n_frames_ += 1
        mean, cov, log_z = jax.device_get((out.mean[0], out.cov[0], out.log_z[0]))
        self.log_z_ = float(log_z)
        return np.array(mean), np.array(cov)

    def _control(self, control: Any) -> Any:
        """The control of one step as the prior takes it, (1, 2, ...); before the first frame none has acted."""
        if self._dim is None and self._values is None:
            if control is not None:
                raise ValueError("the model was fitted without controls: leave control= out")
            return None
        if self._state is not None and control is None:
            raise ValueError("the prior is controlled: pass the control that acted since the last frame as control=")
        if self._values is not None:
            value = np.asarray(0 if control is None else control)
            if value.shape != () or value.dtype.kind not in "iu" or not 0 <= value < self._values:
                raise ValueError(f"control is {control!r}: it must be an integer from 0 to {self._values - 1}")
            return jnp.full((1, 2), int(value), jnp.int32)
        u = np.zeros(self._dim or 0) if control is None else np.asarray(control, np.float64).reshape(-1)
        if u.shape != (self._dim,) or not np.isfinite(u).all():
            raise ValueError(f"control is {control!r}: it must be {self._dim} finite numbers")
        return jnp.broadcast_to(jnp.asarray(u, jnp.float32), (1, 2, len(u)))


def one_frame(frame: Any, shapes: Mapping[str, tuple[int, ...]]) -> Sequences:
    """One frame as a batch of one sequence of one frame, always with a mask so that nothing is compiled twice."""
    names = ", ".join(sorted(shapes))
    if len(shapes) > 1 and frame is not None and not isinstance(frame, Mapping):
        raise ValueError(f"pass a mapping with the modalities {names}, None where one is missing")
    given = frame if isinstance(frame, Mapping) else dict.fromkeys(shapes, frame)
    if unknown := set(given) - set(shapes):
        raise ValueError(f"the frame has the modality {sorted(unknown)[0]!r}; the model knows {names}")
    modalities = {}
    for name, shape in shapes.items():
        values = given.get(name)
        x = None if values is None else _values(name, values, shape)
        seen = x is not None and not np.isnan(x).any()
        x = x if x is not None and seen else np.zeros(shape, np.float32)
        modalities[name] = Modality(x[None, None], np.full((1, 1), seen))
    return Sequences(modalities)


def _values(name: str, values: Any, shape: tuple[int, ...]) -> np.ndarray:
    """The frame as the door would convert it."""
    x = np.asarray(values)
    if x.shape != shape and (*x.shape, 1) != shape:
        raise ValueError(f"the frame of {name} has shape {x.shape}, but frames have shape {shape}: pass one frame")
    scale = 1 / np.iinfo(x.dtype).max if x.dtype in (np.uint8, np.uint16) and len(shape) > 1 else 1.0
    x = x.astype(np.float32).reshape(shape) * np.float32(scale)
    if np.isinf(x).any():
        raise ValueError(f"the frame of {name} holds an infinite value: pass None if it is missing")
    return x


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
    if state is None:
        before = core.online_start(chain)
    else:
        at_last = eqx.tree_at(lambda s: s.time, state, jnp.zeros_like(state.time))
        before, _ = core.online_step(chain, at_last, jnp.zeros_like(h), jnp.zeros_like(Lam))
    _, out = core.online_step(chain, before, h, Lam)
    return core.OnlineState(out.mean, out.cov, out.log_z, before.time), out
