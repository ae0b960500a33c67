"""Filtering as frames come in, one at a time."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from rpgssm.data.convert import one_frame
from rpgssm.model import ChainModel

from ._inference import online_step


class Online:
    """Filtering one frame at a time, from one sensor stream: what `filter` gives, as the frames come in.

    `step(frame)` takes a frame (a mapping if there are several modalities), or None if it is missing, and returns the
    filtered mean (K,) and covariance (K, K). With a controlled prior pass the control that acted on the way *to* this
    frame, except at the first. `n_frames_` and `log_z_` say how many frames were taken in, and their log Z.
    """

    def __init__(
        self,
        model: ChainModel,
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

    def step(self, frame: object, control: object = None) -> tuple[np.ndarray, np.ndarray]:
        """Take in the next frame."""
        batch, u = one_frame(frame, self._shapes), self._control(control)
        self._state, out = online_step(self._model, self._state, batch, u)
        self.n_frames_ += 1
        mean, cov, log_z = jax.device_get((out.mean[0], out.cov[0], out.log_z[0]))
        self.log_z_ = float(log_z)
        return np.array(mean), np.array(cov)

    def _control(self, control: object) -> Any:
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
