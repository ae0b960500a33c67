"""The estimator: `fit` on a user's arrays, then latents, forecasts and a saved model.

Follows the conventions of scikit-learn: settings in the constructor, checks in `fit`, what was learned in attributes
with a trailing underscore. NumPy in, NumPy out, in the form in which the data came.

`Estimator` carries data between a user and a model. How a model is built from settings and trained is for its
subclasses; for those trained by gradients see `GradientEstimator`. Which questions can be asked is read off the model
class (`rpgssm.model.abilities`): a method that a model has no answer for does not exist.
"""

import copy
import sys
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, ClassVar, TypeVar, dataclass_transform

import jax
import numpy as np
from jaxtyping import Array, PRNGKeyArray
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError
from sklearn.utils.metaestimators import available_if

from rpgssm.data import Sequences
from rpgssm.data.convert import with_future
from rpgssm.data.form import form_of, in_form
from rpgssm.data.sequences import AnyArray
from rpgssm.model import Model, abilities
from rpgssm.settings import check, declared, is_whole, setting, with_settings
from rpgssm.training import Report, Trained, check_finite

from . import _decoders, _saving
from ._inference import FRAMES, answers, decode, draw, in_batches, predict
from ._moved import refuse_moved
from ._online import Online
from ._prepare import DataInfo, Prepared, prepare
from ._results import Latents, Prediction
from ._timescales import timescales

FitCallback = Callable[[Any, Report], None]
E = TypeVar("E", bound="Estimator")


def _can(question: str) -> Any:
    """Let a method exist only if the model class has an answer to the question."""
    return available_if(lambda self: question in abilities(self.model_type))


@with_settings
@dataclass_transform(field_specifiers=(field,))
class Estimator(TransformerMixin, BaseEstimator):
    """A model with latents over sequences."""

    model_type: ClassVar[type[Model]]
    title: ClassVar[str]  # of the method, in a few words
    command_name: ClassVar[str] = ""  # on the command line
    takes_controls: ClassVar[bool] = False

    latent_dim: int = setting(8, "Number of latent dimensions.", least=1, kw_only=False)
    random_state: int = setting(0, "Seed of everything random.", least=0, most=2**32 - 1)
    verbose: bool = setting(True, "Show progress.", effect="none")

    model_: Any = field(init=False)
    decoders_: dict[str, Any] = field(init=False)
    history_: dict[str, np.ndarray] = field(init=False)
    notes_: list[str] = field(init=False)
    n_steps_: int = field(init=False)
    best_step_: int = field(init=False)
    stopped_: str = field(init=False)
    _data_info: DataInfo = field(init=False)
    _fitted: dict[str, Any] = field(init=False)  # the settings of the fit, by name

    def __new__(cls: type[E], *args: object, **settings: object) -> E:
        refuse_moved(cls, settings)
        return object.__new__(cls)

    def __init_subclass__(cls, **more: Any) -> None:
        super().__init_subclass__(**more)
        with_settings(cls)
        if "command_name" not in cls.__dict__:
            cls.command_name = cls.__name__.lower()

    # --- for subclasses -----------------------------------------------------------------------------------------------

    @abstractmethod
    def build(self, info: DataInfo, data: Sequences | None, seed: int) -> Model:
        """A model to start from. Without data, when a saved model is loaded, only shapes matter."""

    @abstractmethod
    def _learn(
        self,
        prepared: Prepared,
        start: Model | None = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callable[[Report], None]] = (),
    ) -> Trained[Any]:
        """Train a model, from `start` if it is given."""

    @abstractmethod
    def _score(self, data: Sequences) -> float:
        """How well the fitted model explains data: higher is better."""

    def _prepare(self, X: object, mask: object, controls: object, *validation: object) -> Prepared:
        """Convert the user's data."""
        return prepare(X, mask, controls, *validation)

    def _networks(self, name: str) -> str:
        """The networks of a modality, to follow the shape of its frames in a sentence."""
        return ""

    def _skeleton(self, info: DataInfo, structure: dict[str, Any]) -> Model:
        """A model like the fitted one, to be filled with saved numbers."""
        del structure
        return self.build(info, None, int(self.random_state))

    def run_in(self: E, directory: Path, verbose: bool) -> E:
        """Keep the checkpoints of the next fit in a folder, if the method has checkpoints."""
        del directory
        return self.set_params(verbose=verbose)

    def _structure(self) -> dict[str, Any]:
        """What must be known of a fitted model, beside the settings, to build one like it."""
        return {}

    @property
    @abstractmethod
    def total_steps(self) -> int:
        """How many steps of training there will be at most."""

    # --- fitting ------------------------------------------------------------------------------------------------------

    def fit(
        self: E,
        X: object,
        y: object = None,
        *,
        mask: object = None,
        controls: object = None,
        validation: object = None,
        validation_mask: object = None,
        validation_controls: object = None,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[FitCallback] = (),
    ) -> E:
        """Learn the model from X: (N, T, ...), one long (T, ...), a list of ragged arrays, or a mapping of modalities.

        NaN, or False in `mask` (N, T), marks missing frames. `controls` are vectors (N, T, U) or integers (N, T); the
        one of frame t acts on the step from t to t + 1. `y` is ignored. `validation` is data held out by the user;
        else a fraction of X is held out. With `checkpoint_dir`, `resume=True` goes on from the last checkpoint in it,
        and `overwrite=True` starts afresh where it holds a run. `callbacks` are called every second or so while
        training as `callback(estimator, report)`: an estimator with the model as it is then, for `transform` and the
        like, and the new rows of the history. The time they take is not counted as training.
        """
        check(self)
        prepared = self._prepare(X, mask, controls, validation, validation_mask, validation_controls)
        self._refuse_controls(prepared.info)
        if self.verbose:
            print("\n".join([prepared.info.description, *(f"note: {n}" for n in prepared.notes)]), file=sys.stderr)
        shown = [self._on_a_copy(callback, prepared) for callback in callbacks]
        trained = self._learn(prepared, resume=resume, overwrite=overwrite, callbacks=shown)
        self._keep(trained)
        self._begin(prepared)
        self.n_features_in_ = _features(prepared.info)
        return self

    def partial_fit(self: E, X: object, y: object = None, *, mask: object = None, controls: object = None) -> E:
        """Train the model for as many steps again on X, from where it is; the first call is a `fit`.

        Optimizer and learning rate start anew, and decoders are dropped, since the latents move away from them.
        """
        if not hasattr(self, "model_"):
            return self.fit(X, mask=mask, controls=controls)
        check(self)
        data, notes = self._convert(X, mask, controls)
        prepared = self._split(Prepared(data, None, self._data_info, None, notes))
        before, steps = self.history_, self.n_steps_
        self._keep(self._learn(prepared, self.model_))
        self.notes_, self.decoders_ = self.notes_ + prepared.notes, {}
        self.history_ = joined(before, self.history_, steps)
        self.n_steps_, self.best_step_ = self.n_steps_ + steps, self.best_step_ + steps
        return self

    def _split(self, prepared: Prepared) -> Prepared:
        """Choose windows, and hold out validation data, as far as the method does."""
        return prepared

    def _keep(self, trained: Trained[Any]) -> None:
        """Take over what training gave."""
        self.model_, self.history_ = trained.model, trained.history.columns
        self.n_steps_, self.best_step_, self.stopped_ = trained.step, trained.best_step, trained.stopped

    def _begin(self, prepared: Prepared) -> None:
        """Take over what is known before training."""
        self._data_info, self.notes_, self.decoders_ = prepared.info, prepared.notes, {}
        self._fitted = self._settings()

    def _settings(self) -> dict[str, Any]:
        """The settings as they are now, by name."""
        return {name: _as_it_is(getattr(self, name)) for name in declared(type(self))}

    def _as_fitted(self: E) -> E:
        """The same with the settings of the fit, which may have been changed since."""
        same = copy.copy(self)
        same.__dict__.update(self._fitted)
        return same

    def _on_a_copy(self, callback: FitCallback, prepared: Prepared) -> Callable[[Report], None]:
        """The estimator itself must stay as it was until training has succeeded."""
        shown = copy.copy(self)
        shown._begin(prepared)

        def call(report: Report) -> None:
            shown.model_, shown.n_steps_ = report.model, report.step
            callback(shown, report)

        return call

    def _refuse_controls(self, info: DataInfo) -> None:
        if info.controlled and not self.takes_controls:
            raise ValueError(
                f"{type(self).__name__} has no use for controls: leave controls= out, or use RPGSSM(), which has "
                "priors for them"
            )

    # --- questions ----------------------------------------------------------------------------------------------------

    def transform(self, X: object, *, mask: object = None, controls: object = None) -> Any:
        """Smoothed means of the latents, (N, T, K)."""
        return self.smooth(X, mask=mask, controls=controls).mean

    def fit_transform(
        self, X: object, y: object = None, *, mask: object = None, controls: object = None, **options: Any
    ) -> Any:
        """`fit`, then `transform` of the same data."""
        return self.fit(X, y, mask=mask, controls=controls, **options).transform(X, mask=mask, controls=controls)

    def smooth(self, X: object, *, mask: object = None, controls: object = None) -> Latents:
        """Means and covariances of the latents given all frames of their sequence."""
        return self._latents("smooth", X, mask, controls)

    @_can("filter")
    def filter(self, X: object, *, mask: object = None, controls: object = None) -> Latents:
        """Means and covariances of the latents given the frames up to their own (causal)."""
        return self._latents("filter", X, mask, controls)

    def _latents(self, question: str, X: object, mask: object, controls: object) -> Latents:
        data, _ = self._convert(X, mask, controls)
        form, p = form_of(X, data), answers(self.model_, question, data)
        check_finite(p.mean, type(self).__name__, lengths=data.lengths)

        def shaped(x: np.ndarray | None, lengths: AnyArray | None = data.lengths) -> Any:
            return None if x is None else in_form(form, x, lengths)

        return Latents(shaped(p.mean), shaped(p.cov), shaped(p.log_z, None))

    @_can("online_step")
    def online(self) -> Online:
        """A filter that takes in one frame at a time."""
        self._check_fitted()
        info = self._data_info
        return Online(self.model_, info.frame_shapes, info.control_dim, info.n_control_values)

    @_can("forecast")
    def forecast(
        self,
        X: object,
        steps: int,
        *,
        mask: object = None,
        controls: object = None,
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
        info = self._data_info
        data, future = with_future(
            X, steps, info.frame_shapes, info.control_dim, info.n_control_values, mask=mask, controls=controls
        )
        form = form_of(X, data)
        size = max(1, FRAMES // max(data.time, steps * max(samples, 1)))

        def ahead(batch: Sequences, *rest: Any) -> tuple[Array, Array | None, Array | None]:
            controls, key = (None, *rest) if future is None else rest
            return predict(self.model_, batch, controls, steps, samples, key)

        mean, cov, drawn = in_batches(ahead, data, size=size, along=future, key=self._key(random_state))
        if drawn is not None:
            drawn = in_form(form, np.ascontiguousarray(np.swapaxes(drawn, 0, 1)), None, axis=1)
        return Prediction(in_form(form, mean, None), None if cov is None else in_form(form, cov, None), drawn)

    @_can("sample")
    def sample(
        self, n_samples: int = 1, length: int = 100, *, controls: object = None, random_state: int | None = None
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
            return np.array(self.model_.sample(key, length, n_samples))
        if controls is None:
            raise ValueError("the model was fitted with controls: pass controls= for each frame to be drawn")
        u = np.asarray(controls)
        u = u.astype(np.int32 if info.control_dim is None else np.float32)
        if u.ndim == (1 if info.control_dim is None else 2):
            u = np.broadcast_to(u, (n_samples, *u.shape))
        if len(u) != n_samples:
            raise ValueError(f"controls are given for {len(u)} trajectories, but n_samples is {n_samples}")
        return np.array(self.model_.sample(key, length, n_samples, u))

    @_can("sample_posterior")
    def sample_posterior(
        self,
        X: object,
        n_samples: int = 1,
        *,
        mask: object = None,
        controls: object = None,
        random_state: int | None = None,
    ) -> Any:
        """Trajectories of the latents drawn from their posterior, (n_samples, N, T, K)."""
        data, _ = self._convert(X, mask, controls)
        _check_count("n_samples", n_samples)
        size = max(1, FRAMES // (data.time * n_samples))
        key = self._key(random_state)
        drawn = in_batches(lambda b, k: draw(self.model_, b, k, n_samples), data, size=size, key=key)
        return in_form(form_of(X, data), np.ascontiguousarray(np.swapaxes(drawn, 0, 1)), data.lengths, axis=1)

    def score(self, X: object, y: object = None, *, mask: object = None, controls: object = None) -> float:
        """What the method maximises, per observed frame, with nothing hidden: higher is better.

        RPGSSM: the free energy. SVAE, DKF and KVAE: the ELBO. RKN: the log-likelihood of frames given filtered means.
        LinearGaussianSSM: the log-likelihood. CPC and DCL: minus the loss. RPGSSM, CPC and DCL compare each frame with
        those of the other sequences of a batch: their scores are comparable for the same data and `batch_size` only,
        and a single sequence is cut into windows, as in training.
        """
        return self._score(self._convert(X, mask, controls)[0])

    # --- frames -------------------------------------------------------------------------------------------------------

    def fit_decoder(
        self: E,
        X: object,
        *,
        mask: object = None,
        controls: object = None,
        steps: int = 1000,
        learning_rate: float = 2e-3,
        samples: int = 0,
    ) -> E:
        """Train decoders from the smoothed latents to the frames, to see what the latents hold. The model stays.

        They learn from the posterior's means, or, as in the paper, from `samples` draws of the posterior of each frame:
        that takes so many times as long.
        """
        _check_count("steps", steps)
        _check_count("samples", samples, least=0)
        data, _ = self._convert(X, mask, controls)
        posterior = answers(self.model_, "smooth", data)
        if samples and posterior.cov is None:
            raise ValueError(f"samples is {samples}, but {type(self).__name__} has no posterior to draw from: use 0")
        self.decoders_ = _decoders.fit(
            data,
            posterior,
            steps=steps,
            learning_rate=learning_rate,
            samples=samples,
            batch_size=min(getattr(self, "batch_size", 32), 8),
            window=self._window(data),
            seed=int(self.random_state),
            progress=bool(self.verbose),
        )
        return self

    def reconstruct(self, X: object, *, mask: object = None, controls: object = None) -> Any:
        """The frames that are expected for the smoothed latents: by the decoders of `fit_decoder`, if there are any,
        else by the model's own."""
        data, _ = self._convert(X, mask, controls)
        own = not self.decoders_ and "reconstruct" in abilities(self.model_type)
        if own:
            frames = answers(self.model_, "reconstruct", data)
        else:
            frames = self._decoded(answers(self.model_, "smooth", data).mean)
        form = form_of(X, data)
        return _alone({name: in_form(form, x, data.lengths) for name, x in frames.items()})

    def decode(self, latents: object) -> Any:
        """The frames that are expected for given latents (..., K)."""
        self._check_fitted()
        z = np.asarray(latents, np.float32)
        if z.ndim == 0 or z.shape[-1] != self._n_latents:
            raise ValueError(f"latents have shape {z.shape}: the last axis must be {self._n_latents} long")
        return _alone(self._decoded(z))

    def _decoded(self, z: np.ndarray) -> dict[str, np.ndarray]:
        """Frames by modality."""
        decoders = self.decoders_ or (self.model_.emissions if "decode" in abilities(self.model_type) else {})
        if not decoders:
            raise NotFittedError("there is no decoder from latents to frames yet: call fit_decoder(X) first")
        rows, out = z.reshape(-1, z.shape[-1]), {}
        for name, decoder in decoders.items():
            parts = [np.asarray(decode(decoder, rows[i : i + FRAMES])) for i in range(0, len(rows), FRAMES)]
            frames = np.concatenate(parts)
            out[name] = frames.reshape(*z.shape[:-1], *frames.shape[1:])
        return out

    # --- saved models -------------------------------------------------------------------------------------------------

    def save(self, directory: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model to a folder: config.json, weights and a README. See `rpgssm.load`."""
        self._check_fitted()
        return _saving.save(self._as_fitted(), Path(directory), overwrite)

    @classmethod
    def load(cls: type[E], directory: str | Path, **custom: object) -> E:
        """Read a saved model of this class, as `rpgssm.load` does."""
        return _saving.load(Path(directory), cls, custom)

    # --- descriptions -------------------------------------------------------------------------------------------------

    def summary(self) -> str:
        """The model, its data and its training in a few lines."""
        self._check_fitted()
        info, leaves = self._data_info, [x for x in jax.tree.leaves(self.model_) if hasattr(x, "size")]
        lines = [
            f"{self.title} with {self._n_latents} latent dimensions{self._as_fitted()._form()}",
            *(
                f"  {name}: frames {'×'.join(map(str, shape))}{self._networks(name)}"
                for name, shape in sorted(info.frame_shapes.items())
            ),
            f"  {sum(x.size for x in leaves):,} parameters",
            f"fitted to {info.description}",
            f"  {self.n_steps_} steps ({self.stopped_}); kept the model of step {self.best_step_}",
        ]
        stage = np.nan_to_num(self.history_.get("stage", np.zeros(len(self.history_["step"]))))
        last = stage == stage.max(initial=0)  # losses of different stages cannot be compared
        if len(loss := self.history_["loss"][last]):
            which = " of the last stage" if len(set(stage)) > 1 else ""
            lines.append(f"  loss{which} {loss[0]:.3f} at first, {loss[-1]:.3f} at last")
        held_out = self.history_["validation_loss"][last] if "validation_loss" in self.history_ else np.zeros(0)
        if np.isfinite(held_out).any():
            lines.append(f"  held-out loss {np.nanmin(held_out):.3f} at best")
        return "\n".join([*lines, *self._dynamics()])

    def _form(self) -> str:
        """What distinguishes this model from others of its method, to follow the number of latents in a sentence."""
        return ""

    def _dynamics(self) -> list[str]:
        """What was found of the dynamics, in lines."""
        A = getattr(self, "transition_", None)
        return [] if A is None else ["dynamics (eigenvalues of A)", *timescales(A)]

    @property
    def transition_(self) -> np.ndarray:
        """The matrix A of the fitted chain. Models without a single one have no such attribute."""
        self._check_fitted()
        prior = getattr(self.model_, "prior", None)
        if not hasattr(prior, "A"):
            why = ": A depends on the controls" if self._data_info.controlled else ""
            raise AttributeError(f"this {type(self).__name__} has no single transition matrix{why}")
        return np.array(getattr(prior, "A"))  # noqa: B009

    # --- small things -------------------------------------------------------------------------------------------------

    @property
    def _n_latents(self) -> int:
        return int(self.model_.latent_dim)

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            name = type(self).__name__
            raise NotFittedError(f"this {name} is not fitted yet: call fit(X) first, or {name}.load(directory)")

    def _convert(self, X: object, mask: object, controls: object) -> tuple[Sequences, list[str]]:
        self._check_fitted()
        return self._data_info.convert(X, mask, controls)

    def _window(self, data: Sequences) -> int | None:
        """Frames per training window of these data."""
        del data
        return None

    def _key(self, random_state: int | None = None) -> PRNGKeyArray:
        return jax.random.key(int(self.random_state if random_state is None else random_state))


def joined(first: dict[str, np.ndarray], second: dict[str, np.ndarray], steps: int) -> dict[str, np.ndarray]:
    """The history of a training and of one that followed it after so many steps; NaN where one has no such column."""
    second = second | {"step": second["step"] + steps}
    if len(first["seconds"]):
        second["seconds"] = second["seconds"] + first["seconds"][-1]

    def column(table: dict[str, np.ndarray], name: str) -> np.ndarray:
        return table.get(name, np.full(len(table["step"]), np.nan))

    return {name: np.concatenate([column(first, name), column(second, name)]) for name in {**first, **second}}


def _as_it_is(value: object) -> object:
    """A setting whose parts do not change with the user's."""
    if isinstance(value, list | tuple) and not hasattr(value, "_fields"):
        parts = [_as_it_is(one) for one in value]
        return tuple(parts) if isinstance(value, tuple) else parts
    return copy.copy(value) if isinstance(value, Estimator | dict) else value


def _alone(frames: dict[str, Any]) -> Any:
    return next(iter(frames.values())) if len(frames) == 1 else frames


def _features(info: DataInfo) -> int:
    return int(np.prod(info.frame_shapes[min(info.frame_shapes)]))


def _check_count(name: str, value: object, least: int = 1) -> None:
    if not is_whole(value, least):
        raise ValueError(f"{name} is {value!r}: it must be a whole number of at least {least}")
