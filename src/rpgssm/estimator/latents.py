"""What is asked of a fitted model: latents given data, forecasts, samples, and a score."""

from collections.abc import Callable
from functools import partial
from typing import Any, ClassVar

import jax
import numpy as np

from rpgssm import core
from rpgssm.data import Recording, Sequences, as_sequences
from rpgssm.training import check_finite

from . import inference
from .base import SequenceEstimator
from .controls import check_controls, split_controls
from .online import Online
from .results import Latents, Prediction, form_of, in_form
from .settings import is_whole


class LatentEstimator(SequenceEstimator):
    """An estimator whose model has a prior chain and recognition potentials (`model_.chain`, `model_.potentials`).

    Or one with methods of its own for what is asked of it (see `inference.py`). `can_filter` and `can_forecast` say
    what is defined.
    """

    can_filter: ClassVar[bool] = True
    can_forecast: ClassVar[bool] = True

    def transform(self, X: Any, *, mask: Any = None, controls: Any = None) -> Any:
        """Smoothed means of the latents, (N, T, K)."""
        return self.smooth(X, mask=mask, controls=controls).mean

    def fit_transform(self, X: Any, y: Any = None, *, mask: Any = None, controls: Any = None, **options: Any) -> Any:
        """`fit`, then `transform` of the same data."""
        return self.fit(X, y, mask=mask, controls=controls, **options).transform(X, mask=mask, controls=controls)

    def smooth(self, X: Any, *, mask: Any = None, controls: Any = None) -> Latents:
        """Means and covariances of the latents given all frames of their sequence."""
        return self._latents(inference.smooth, X, mask, controls)

    def filter(self, X: Any, *, mask: Any = None, controls: Any = None) -> Latents:
        """Means and covariances of the latents given the frames up to their own (causal)."""
        self._check_filter()
        return self._latents(inference.filter, X, mask, controls)

    def _check_filter(self) -> None:
        if not self.can_filter:
            raise ValueError(
                f"{type(self).__name__} has no filter: its posterior looks at all frames of a "
                "sequence at once. Use smooth(X), on the frames up to the one of interest if it is to be causal"
            )

    def _latents(self, function: Callable[..., Any], X: Any, mask: Any, controls: Any) -> Latents:
        data, _ = self._sequences(X, mask, controls)
        form = form_of(X, data)
        p = inference.in_batches(partial(function, self.model_), data)
        check_finite(p.mean, type(self).__name__, lengths=data.lengths)
        mean, cov = (in_form(form, x, data.lengths) for x in (p.mean, p.cov))
        return Latents(mean, cov, None if p.log_z is None else in_form(form, p.log_z, None))

    def online(self) -> Online:
        """A filter that takes in one frame at a time."""
        self._check_fitted()
        self._check_filter()
        info = self._data_info
        return Online(self.model_, info.frame_shapes, info.control_dim, info.n_control_values)

    def forecast(
        self,
        X: Any,
        steps: int,
        *,
        mask: Any = None,
        controls: Any = None,
        samples: int = 0,
        random_state: int | None = None,
    ) -> Prediction:
        """The latents of the `steps` frames after the last of each sequence, with covariances and sampled paths.

        With a controlled prior, `controls` begin with the first frame of X, as always, and go on into the future: one
        per frame of X and per step to come. What they hold beyond that is not used.
        """
        self._check_fitted()
        _check_count("steps", steps)
        _check_count("samples", samples, least=0)
        data, future = self._with_future(X, mask, controls, steps)
        form = form_of(X, data)
        size = max(1, inference.FRAMES // max(data.time, steps * max(samples, 1)))

        def predict(batch, *rest):
            ahead, key = (None, *rest) if future is None else rest
            return inference.predict(self.model_, batch, ahead, steps, samples, key)

        mean, cov, drawn = inference.in_batches(predict, data, size=size, along=future, key=self._key(random_state))
        if drawn is not None:
            drawn = in_form(form, np.ascontiguousarray(np.swapaxes(drawn, 0, 1)), None, axis=1)
        return Prediction(in_form(form, mean, None), in_form(form, cov, None), drawn)

    def _with_future(self, X: Any, mask: Any, controls: Any, steps: int) -> tuple[Sequences, Any]:
        """The context with its controls, and the controls of the steps ahead."""
        info = self._data_info
        if isinstance(X, Recording):
            controls = X.controls if controls is None else controls
            X = Recording(X.data, X.mask, None, X.lengths)
        if isinstance(X, Sequences) and controls is not None:
            X = Sequences(X.modalities, None, X.lengths)
        data, _ = as_sequences(X, mask=mask, frame_shapes=info.frame_shapes)
        if not info.controlled:
            if controls is not None or data.controls is not None:
                raise ValueError("the model was fitted without controls: leave controls= out")
            return data, None
        if controls is None:
            raise ValueError(
                "the model was fitted with controls: pass controls= for the frames of X and for the steps to come"
            )
        lengths = np.full(len(data), data.time) if data.lengths is None else np.asarray(data.lengths, np.int64)
        context, future = split_controls(controls, lengths, data.time, steps, info.control_dim)
        for part in (context, future):
            check_controls(Sequences(data.modalities, part), info.control_dim, info.n_control_values, "controls")
        return Sequences(data.modalities, context, data.lengths), future

    def sample(
        self, n_samples: int = 1, length: int = 100, *, controls: Any = None, random_state: int | None = None
    ) -> np.ndarray:
        """Trajectories of the latents drawn from the prior, (n_samples, length, K).

        `controls` are for one trajectory, and then used for all, or have n_samples of them in their first axis.
        """
        self._check_fitted()
        _check_count("n_samples", n_samples)
        _check_count("length", length, least=2)
        info, key = self._data_info, self._key(random_state)
        if not info.controlled:
            if controls is not None:
                raise ValueError("the model was fitted without controls: leave controls= out")
            return np.array(core.sample_prior(key, self.model_.chain(length), length, n_samples))
        if controls is None:
            raise ValueError("the model was fitted with controls: pass controls= for each frame to be drawn")
        u = np.asarray(controls)
        u = u.astype(np.int32 if info.control_dim is None else np.float32)
        if u.ndim == (1 if info.control_dim is None else 2):
            u = np.broadcast_to(u, (n_samples, *u.shape))
        if len(u) != n_samples:
            raise ValueError(f"controls are given for {len(u)} trajectories, but n_samples is {n_samples}")
        chain = self.model_.chain(length, u)
        return np.array(core.sample_prior(key, chain, length, 1)[0])

    def sample_posterior(
        self,
        X: Any,
        n_samples: int = 1,
        *,
        mask: Any = None,
        controls: Any = None,
        random_state: int | None = None,
    ) -> Any:
        """Trajectories of the latents drawn from their posterior, (n_samples, N, T, K)."""
        data, _ = self._sequences(X, mask, controls)
        _check_count("n_samples", n_samples)

        def draw(batch, key):
            return inference.posterior_samples(self.model_, batch, key, n_samples)

        size = max(1, inference.FRAMES // (data.time * n_samples))
        drawn = inference.in_batches(draw, data, size=size, key=self._key(random_state))
        return in_form(form_of(X, data), np.ascontiguousarray(np.swapaxes(drawn, 0, 1)), data.lengths, axis=1)

    def _in_windows(self, data: Sequences) -> Sequences:
        window = self._window(data)
        count = 0 if window is None else data.time // window
        if window is None or count < 2:
            raise ValueError(
                f"a score compares sequences, and there is one of {data.time} frames: pass several, or a longer one"
            )
        return data.window(np.arange(count) * window, window, np.zeros(count, int))

    def _key(self, random_state: int | None) -> Any:
        return jax.random.key(int(self.random_state if random_state is None else random_state))


def _check_count(name: str, value: Any, least: int = 1) -> None:
    if not is_whole(value, least):
        raise ValueError(f"{name} is {value!r}: it must be a whole number of at least {least}")
