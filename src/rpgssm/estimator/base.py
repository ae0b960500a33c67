"""What all estimators of this library share: data come in, a model is trained on them, and it knows what it was fed.

An estimator adds how a model is built from the settings (`_build`) and trained (`_train`; by gradients: `gradient.py`),
and what can be asked of it.
"""

import copy
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import jax
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from rpgssm.data import Sequences, as_sequences
from rpgssm.training import Report

from .building import frame_ndim
from .controls import check_controls
from .settings import check_settings

FEWEST_HELD_OUT = 4  # sequences (or windows) without which a validation says nothing

T = TypeVar("T", bound="SequenceEstimator")
FitCallback = Callable[[Any, Report], None]


@dataclass(frozen=True)
class DataInfo:
    """What a model must know of the data it was fitted to. `scales` other than 1 are those of integer images."""

    frame_shapes: dict[str, tuple[int, ...]]
    scales: dict[str, float]
    control_dim: int | None
    n_control_values: int | None
    description: str

    @classmethod
    def of(cls, data: Sequences) -> "DataInfo":
        dim = values = None
        if data.controls is not None:
            if data.controls.ndim == 2:
                values = int(np.max(data.controls)) + 1
            else:
                dim = data.controls.shape[-1]
        scales = {name: data.modalities[name].scale for name in data.names}
        return cls(dict(data.frame_shapes), scales, dim, values, data.describe().replace("\n", "; "))

    @property
    def controlled(self) -> bool:
        return self.control_dim is not None or self.n_control_values is not None


class SequenceEstimator(TransformerMixin, BaseEstimator):
    """A model with latents over sequences, in the conventions of scikit-learn."""

    latent_dim: int
    encoder: Any
    max_steps: int
    batch_size: int
    window: Any
    validation_fraction: float | None
    n_init: int
    checkpoint_dir: Any
    random_state: int
    verbose: bool

    model_: Any
    decoders_: dict[str, Any]
    history_: dict[str, np.ndarray]
    notes_: list[str]
    n_steps_: int
    best_step_: int
    stopped_: str
    _data_info: DataInfo

    @abstractmethod
    def _build(self, info: DataInfo, data: Sequences | None, seed: int) -> Any:
        """A model to start from. Without data (when loading) numbers do not matter, only shapes."""

    def _skeleton(self, info: DataInfo, structure: dict[str, Any]) -> Any:
        """A model of the same structure as the fitted one, of which `_structure` is told."""
        return self._build(info, None, int(self.random_state))

    def _structure(self) -> dict[str, Any]:
        """What must be known of a fitted model, beside the settings, to build one like it."""
        return {}

    @abstractmethod
    def _train(self, models: list[Any], data: Sequences, held_out: Sequences | None, window: Any, **more: Any) -> None:
        """Train the models, and set `model_` (the best), `history_`, `n_steps_`, `best_step_` and `stopped_`."""

    @abstractmethod
    def _headline(self) -> str:
        """The model in a line."""

    @abstractmethod
    def _parts(self, name: str) -> str:
        """The networks of one modality."""

    @abstractmethod
    def _dynamics(self) -> list[str]:
        """What was found of the dynamics, in lines."""

    def fit(
        self: T,
        X: Any,
        y: Any = None,
        *,
        mask: Any = None,
        controls: Any = None,
        validation: Any = None,
        validation_mask: Any = None,
        validation_controls: Any = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[FitCallback] = (),
    ) -> T:
        """Learn the model from X: (N, T, ...), one long (T, ...), a list of ragged arrays, or a mapping of modalities.

        NaN, or False in `mask` (N, T), marks missing frames. `controls` are vectors (N, T, U) or integers (N, T); the
        one of frame t acts on the step from t to t + 1. `y` is ignored. `validation` is data held out by the user;
        else a fraction of X is held out. With `checkpoint_dir`, `resume=True` goes on from the last checkpoint in it,
        and `overwrite=True` starts afresh where it holds a run. `callbacks` are called every second or so while
        training as `callback(estimator, report)`: an estimator with the model as it is then, for `transform` and the
        like, and the new rows of the history. The time they take is not counted as training.
        """
        check_settings(self.get_params(deep=False))
        data, notes = as_sequences(X, mask=mask, controls=controls, frame_ndim=frame_ndim(self.encoder, X))
        info = DataInfo.of(data)
        held_out = None
        if validation is not None:
            held_out, more = as_sequences(
                validation, mask=validation_mask, controls=validation_controls, frame_shapes=info.frame_shapes
            )
            check_controls(held_out, info.control_dim, info.n_control_values, "validation_controls")
            notes += [f"validation: {note}" for note in more]
        window = self._window(data)
        if window is not None:
            notes.append(f"trained on windows of {window} frames")
        if held_out is None and self.validation_fraction is not None:
            data, held_out = self._hold_out(data, window, notes)
        seeds = [int(self.random_state) + i for i in range(self.n_init)]
        models = [self._build(info, data, seed) for seed in seeds]
        options: dict[str, Any] = {"directory": self.checkpoint_dir, "resume": resume, "overwrite": overwrite}
        options["callbacks"] = [self._on_a_copy(callback, info, notes) for callback in callbacks]
        self._train(models, data, held_out, window, **options)
        self._data_info, self.notes_ = info, notes
        self.n_features_in_ = int(np.prod(info.frame_shapes[min(info.frame_shapes)]))
        self.decoders_ = {}
        return self

    def partial_fit(self: T, X: Any, y: Any = None, *, mask: Any = None, controls: Any = None) -> T:
        """Train the model for another `max_steps` on X, from where it is; the first call is a `fit`.

        Optimiser and learning rate start anew, and decoders are dropped, since the latents move away from them.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, mask=mask, controls=controls)
        check_settings(self.get_params(deep=False))
        data, notes = self._sequences(X, mask, controls)
        before, steps = self.history_, self.n_steps_
        window, held_out = self._window(data), None
        if self.validation_fraction is not None:
            data, held_out = self._hold_out(data, window, notes)
        self._train([self.model_], data, held_out, window)
        self.notes_, self.decoders_ = self.notes_ + notes, {}
        self._after(before, steps)
        return self

    def _after(self, before: dict[str, np.ndarray], steps: int) -> None:
        """What was trained just now came after so many steps, of which `before` is the history."""
        self.history_["step"] = self.history_["step"] + steps
        if len(before["seconds"]):
            self.history_["seconds"] = self.history_["seconds"] + before["seconds"][-1]
        self.history_ = _joined(before, self.history_)
        self.n_steps_, self.best_step_ = self.n_steps_ + steps, self.best_step_ + steps

    @property
    def _n_latents(self) -> int:
        """Latent dimensions of the fitted model."""
        return int(self.latent_dim)

    @property
    def all_steps(self) -> int:
        """How many steps of training there will be at the most."""
        return int(self.max_steps)

    def _on_a_copy(self, callback: FitCallback, info: DataInfo, notes: list[str]) -> Callable[[Report], None]:
        """The estimator itself must stay as it was until training has succeeded."""
        shown = copy.copy(self)
        shown._data_info, shown.notes_, shown.decoders_ = info, notes, {}

        def call(report: Report) -> None:
            shown.model_, shown.n_steps_ = report.model, report.step
            callback(shown, report)

        return call

    def summary(self) -> str:
        """The model, its data and its training in a few lines."""
        self._check_fitted()
        info, leaves = self._data_info, [x for x in jax.tree.leaves(self.model_) if hasattr(x, "size")]
        lines = [
            self._headline(),
            *(
                f"  {name}: frames {'×'.join(map(str, shape))}, {self._parts(name)}"
                for name, shape in sorted(info.frame_shapes.items())
            ),
            f"  {sum(x.size for x in leaves):,} parameters",
            f"fitted to {info.description}",
            f"  {self.n_steps_} steps ({self.stopped_}); kept the model of step {self.best_step_}",
        ]
        if len(loss := self.history_["loss"]):
            lines.append(f"  loss {loss[0]:.3f} at first, {loss[-1]:.3f} at last")
        held_out = self.history_.get("validation_loss", np.zeros(0))
        if np.isfinite(held_out).any():
            lines.append(f"  held-out loss {np.nanmin(held_out):.3f} at best")
        return "\n".join([*lines, *self._dynamics()])

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            name = type(self).__name__
            raise NotFittedError(f"this {name} is not fitted yet: call fit(X) first, or {name}.load(directory)")

    def _sequences(self, X: Any, mask: Any, controls: Any) -> tuple[Sequences, list[str]]:
        """Data for a fitted model: frames must be as they were."""
        self._check_fitted()
        info = self._data_info
        data, notes = as_sequences(X, mask=mask, controls=controls, frame_shapes=info.frame_shapes)
        check_controls(data, info.control_dim, info.n_control_values, "controls")
        return data, notes

    def _window(self, data: Sequences) -> int | None:
        """Frames per training window, where sequences are too few (or one) to be compared with each other."""
        if self.window is None or not isinstance(self.window, str):
            return None if self.window is None or self.window >= data.time else int(self.window)
        count = len(data)
        if count >= min(self.batch_size, 16):
            return None
        frames = count * data.time if data.lengths is None else int(np.sum(data.lengths))
        window = int(np.clip(frames // self.batch_size, 20, 100))
        return window if window < data.time else None

    def _hold_out(self, data: Sequences, window: int | None, notes: list[str]) -> tuple[Sequences, Sequences | None]:
        """Split off a validation set, if there is enough for one to mean anything."""
        assert self.validation_fraction is not None
        count = len(data)
        if count > 1:
            pieces = round(self.validation_fraction * count) * (1 if window is None else max(1, data.time // window))
        else:
            pieces = int(self.validation_fraction * data.time) // (window or data.time)
        if pieces < FEWEST_HELD_OUT:
            notes.append("no validation: too few sequences to hold some out")
            return data, None
        return data.split(self.validation_fraction, int(self.random_state))


def _joined(first: dict[str, np.ndarray], second: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Two tables one below the other, NaN where one of them has no such column."""

    def column(table, name):
        return table.get(name, np.full(len(table["step"]), np.nan))

    return {name: np.concatenate([column(first, name), column(second, name)]) for name in {**first, **second}}
