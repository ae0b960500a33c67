"""The estimator: `fit` on arrays, then latents, forecasts and a saved model.

Follows the conventions of scikit-learn: settings in the constructor, validation in `fit`, what was learned in
attributes with a trailing underscore. NumPy in, NumPy out, in the form in which the data came.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal

import jax
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.exceptions import NotFittedError

from rpgssm import core
from rpgssm.data import Modality, Sequences, as_sequences
from rpgssm.models.decoder import decoder_loss, make_decoder
from rpgssm.models.encoders import make_encoder
from rpgssm.models.heads import Recognition, make_head
from rpgssm.models.layers import standardisation
from rpgssm.models.priors import make_prior
from rpgssm.models.rpgssm import RPGSSMModel, label, objective
from rpgssm.training import TrainingConfig, train, train_many

from . import inference, persistence
from .results import Latents, Prediction, form_of, in_form

FEWEST_HELD_OUT = 4  # sequences (or windows) without which a validation says nothing


@dataclass(frozen=True)
class DataInfo:
    """What a model must know of the data it was fitted to."""

    frame_shapes: dict[str, tuple[int, ...]]
    control_dim: int | None
    n_control_values: int | None
    description: str


class RPGSSM(TransformerMixin, BaseEstimator):
    """Recognition-parametrised Gaussian state space model.

    Learns, by maximum likelihood and without reconstructing the observations, a linear Gaussian chain of latents and a
    network that recognises them in each frame.

    Parameters
    ----------
    latent_dim : number of latent dimensions K.
    encoder : "auto" (a CNN for images, an MLP for vectors), "linear", "mlp", "cnn", "cnn-paper", or an Equinox module
        or JAX function from a frame (or a batch of frames) to a vector. For several modalities a mapping by name.
    precision : "diagonal" or "cholesky" (full) precision of the recognition potentials.
    data_dependent : whether the precision is a function of the frame, or one constant. Costs more time, and can say of
        a frame that it shows nothing.
    prior : "auto" (controlled if there are controls, else stationary), "stationary", "free", "controlled", "network".
    initial_transition : where A starts: "identity" or "rotation", each times `initial_scale`, or a matrix.
    initial_precision : where the precisions start.
    max_steps, batch_size, learning_rate, prior_learning_rate, schedule, clip_norm : of the training.
    window : frames per training window of longer sequences; "auto" cuts windows when there are fewer sequences than
        `batch_size`; None never does.
    validation_fraction : of the sequences, held out to choose the best model. None, or too few sequences: none.
    patience : stop after so many validations without improvement; None: never.
    n_init : models started from different seeds and trained together, of which the best (validated) is kept.
    posterior_gradient : False stops the gradient at the posterior, as in EM; tends to diverge.
    checkpoint_dir : folder for checkpoints and the history; makes `fit(..., resume=True)` possible.
    random_state : seed of everything random.
    verbose : show progress.

    Attributes
    ----------
    model_ : the fitted parameters, an Equinox module.
    history_ : table of the training, by column name.
    n_steps_, best_step_, stopped_ : when and why training ended.
    notes_ : what was converted or decided on the way in.
    transition_ : A of the fitted chain, where there is one A.
    """

    def __init__(
        self,
        latent_dim: int = 8,
        encoder: Any = "auto",
        *,
        precision: Literal["diagonal", "cholesky"] = "diagonal",
        data_dependent: bool = False,
        prior: Literal["auto", "stationary", "free", "controlled", "network"] = "auto",
        initial_transition: Any = "identity",
        initial_scale: float = 0.9,
        initial_precision: float = 1.0,
        max_steps: int = 3000,
        batch_size: int = 32,
        learning_rate: float = 3e-3,
        prior_learning_rate: float | None = None,
        schedule: Literal["constant", "cosine", "exponential", "warmup-cosine"] = "cosine",
        clip_norm: float | None = 10.0,
        window: int | Literal["auto"] | None = "auto",
        validation_fraction: float | None = 0.1,
        validate_every: int = 100,
        patience: int | None = None,
        n_init: int = 1,
        posterior_gradient: bool = True,
        checkpoint_dir: str | Path | None = None,
        checkpoint_every: int = 500,
        random_state: int = 0,
        verbose: bool = True,
    ) -> None:
        self.latent_dim = latent_dim
        self.encoder = encoder
        self.precision = precision
        self.data_dependent = data_dependent
        self.prior = prior
        self.initial_transition = initial_transition
        self.initial_scale = initial_scale
        self.initial_precision = initial_precision
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.prior_learning_rate = prior_learning_rate
        self.schedule = schedule
        self.clip_norm = clip_norm
        self.window = window
        self.validation_fraction = validation_fraction
        self.validate_every = validate_every
        self.patience = patience
        self.n_init = n_init
        self.posterior_gradient = posterior_gradient
        self.checkpoint_dir = checkpoint_dir
        self.checkpoint_every = checkpoint_every
        self.random_state = random_state
        self.verbose = verbose

    # -----------------------------------------------------------------------------------------------------------------
    # learning

    def fit(
        self,
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
    ) -> "RPGSSM":
        """Learn the model from X: (N, T, ...), one long (T, ...), a list of ragged arrays, or a mapping of modalities.

        NaN, or False in `mask` (N, T), marks missing frames. `y` is ignored. `validation` is data held out by the user;
        else a fraction of X is held out. `resume=True` goes on from the last checkpoint in `checkpoint_dir`.
        """
        data, notes = as_sequences(X, mask=mask, controls=controls, frame_ndim=self._frame_ndim(X))
        info = self._describe(data)
        held_out = None
        if validation is not None:
            held_out, more = as_sequences(
                validation, mask=validation_mask, controls=validation_controls, frame_shapes=info.frame_shapes
            )
            notes += [f"validation: {note}" for note in more]
        window = self._window(data)
        if window is not None:
            notes.append(f"trained on windows of {window} frames")
        if held_out is None and self.validation_fraction is not None:
            data, held_out = self._hold_out(data, window, notes)
        models = [self._build(info, data, seed) for seed in self._seeds()]
        self._train(models, data, held_out, window, self.max_steps, resume, overwrite)
        self._data_info, self.notes_ = info, notes
        self.n_features_in_ = int(np.prod(next(iter(info.frame_shapes.values()))))
        self.decoders_ = {}
        return self

    def partial_fit(self, X: Any, y: Any = None, *, mask: Any = None, controls: Any = None) -> "RPGSSM":
        """Train the model for another `max_steps` on X, from where it is; the first call is a `fit`."""
        if not hasattr(self, "model_"):
            return self.fit(X, mask=mask, controls=controls)
        data, notes = self._sequences(X, mask, controls)
        self.notes_ += notes
        before = self.history_, self.n_steps_
        window = self._window(data)
        held_out = None
        if self.validation_fraction is not None:
            data, held_out = self._hold_out(data, window, self.notes_)
        self._train([self.model_], data, held_out, window, self.max_steps, False, False, directory=None)
        self.history_ = {
            name: np.concatenate([before[0].get(name, np.full(len(before[0]["step"]), np.nan)), column])
            for name, column in (self.history_ | {"step": self.history_["step"] + before[1]}).items()
        }
        self.n_steps_ += before[1]
        return self

    def _train(self, models, data, held_out, window, steps, resume, overwrite, directory="own") -> None:
        config = TrainingConfig(
            max_steps=steps,
            batch_size=self.batch_size,
            learning_rate=self.learning_rate,
            prior_learning_rate=self.prior_learning_rate,
            schedule=self.schedule,
            clip_norm=self.clip_norm,
            window=window,
            validate_every=min(self.validate_every, steps),
            patience=self.patience,
            checkpoint_every=self.checkpoint_every,
            seed=int(self.random_state),
        )
        options: dict[str, Any] = {
            "validation": held_out,
            "project": RPGSSMModel.project,
            "label": label,
            "directory": self.checkpoint_dir if directory == "own" else None,
            "resume": resume,
            "overwrite": overwrite,
            "progress": self.verbose,
        }
        loss = partial(objective, posterior_gradient=self.posterior_gradient)
        if len(models) == 1:
            trained = train(models[0], loss, data, config, **options)
        else:
            results = train_many(models, loss, data, config, **options)
            scores = [_best_loss(r) for r in results]
            if not np.isfinite(scores).any():
                raise next(r.error for r in results if r.error is not None)
            trained = results[int(np.nanargmin(scores))]
            self.init_losses_ = np.array(scores)
        self.model_ = trained.model
        self.history_ = {name: np.array(column) for name, column in trained.history.columns.items()}
        self.n_steps_, self.best_step_, self.stopped_ = trained.step, trained.best_step, trained.stopped

    def _build(self, info: DataInfo, data: Sequences | None, seed: int) -> RPGSSMModel:
        """A model to start from; `data` is needed for the standardisation, which is a placeholder without."""
        of_prior, *keys = jax.random.split(jax.random.key(seed), 1 + 2 * len(info.frame_shapes))
        recognition = {}
        for i, (name, shape) in enumerate(sorted(info.frame_shapes.items())):
            if data is None:
                features = shape if len(shape) == 1 else shape[2:]
                shift, scale = np.zeros(features, np.float32), np.ones(features, np.float32)
            else:
                modality = data.modalities[name]
                shift, scale = standardisation(_some_frames(modality), _some_mask(modality))
            encoder = make_encoder(self._encoder(name, shape), shape, key=keys[2 * i], shift=shift, scale=scale)
            head = make_head(
                self.precision,
                self.data_dependent,
                encoder.out_dim,
                self.latent_dim,
                key=keys[2 * i + 1],
                initial_precision=self.initial_precision,
            )
            recognition[name] = Recognition(encoder, head)
        controls = {}
        kind = self._prior_kind(info)
        if kind in ("controlled", "network"):
            controls = {"control_dim": info.control_dim, "n_control_values": info.n_control_values}
        prior = make_prior(
            kind,
            self.latent_dim,
            key=of_prior,
            initial=self.initial_transition,
            scale=self.initial_scale,
            **controls,
        )
        return RPGSSMModel(prior, recognition)

    # -----------------------------------------------------------------------------------------------------------------
    # using

    def transform(self, X: Any, *, mask: Any = None, controls: Any = None) -> Any:
        """Smoothed means of the latents, (N, T, K)."""
        return self.smooth(X, mask=mask, controls=controls).mean

    def fit_transform(self, X: Any, y: Any = None, *, mask: Any = None, controls: Any = None, **options: Any) -> Any:
        return self.fit(X, y, mask=mask, controls=controls, **options).transform(X, mask=mask, controls=controls)

    def smooth(self, X: Any, *, mask: Any = None, controls: Any = None) -> Latents:
        """Means and covariances of the latents given all frames of their sequence."""
        return self._latents(inference.smooth, X, mask, controls)

    def filter(self, X: Any, *, mask: Any = None, controls: Any = None) -> Latents:
        """Means and covariances of the latents given the frames up to their own (causal)."""
        return self._latents(inference.filter, X, mask, controls)

    def _latents(self, function, X, mask, controls) -> Latents:
        data, _ = self._sequences(X, mask, controls)
        form = form_of(X, data)
        p = inference.in_batches(partial(function, self.model_), data)
        mean, cov = (in_form(form, x, data.lengths) for x in (p.mean, p.cov))
        return Latents(mean, cov, in_form(form, p.log_z, None))

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

        With a controlled prior, `controls` go on into the future: one per frame of X and per step to come.
        """
        if steps < 1:
            raise ValueError(f"steps is {steps}: forecast at least 1 frame")
        context, future = self._split_controls(X, controls, steps)
        data, _ = self._sequences(X, mask, context)
        form = form_of(X, data)
        key = jax.random.key(self.random_state if random_state is None else random_state)
        size = max(1, inference.FRAMES // max(data.time, steps * max(samples, 1)))
        parts = []
        for start in range(0, len(data), size):
            chosen = np.arange(start, min(start + size, len(data)))
            ahead = None if future is None else future[chosen]
            out = jax.device_get(
                inference.predict(self.model_, data.take(chosen), ahead, steps, samples, jax.random.fold_in(key, start))
            )
            cov = np.broadcast_to(out.cov, (len(chosen), *out.cov.shape[1:]))
            parts.append((out.mean, cov, None if out.samples is None else np.swapaxes(out.samples, 0, 1)))
        mean, cov = (np.concatenate([p[i] for p in parts]) for i in (0, 1))
        drawn = np.swapaxes(np.concatenate([p[2] for p in parts]), 0, 1) if samples else None
        return Prediction(
            in_form(form, mean, None), in_form(form, cov, None), in_form(form, drawn, None, axis=1) if samples else None
        )

    def sample(
        self, n_samples: int = 1, length: int = 100, *, controls: Any = None, random_state: int | None = None
    ) -> np.ndarray:
        """Trajectories of the latents drawn from the prior, (n_samples, length, K)."""
        self._check_fitted()
        key = jax.random.key(self.random_state if random_state is None else random_state)
        if controls is None:
            return np.asarray(core.sample_prior(key, self.model_.chain(length), length, n_samples))
        u = np.asarray(controls)
        u = np.broadcast_to(u[None], (n_samples, *u.shape)) if u.ndim == (1 if self._discrete else 2) else u
        chain = self.model_.chain(length, _as_controls(u))
        return np.asarray(core.sample_prior(key, chain, length, 1)[0])

    def sample_posterior(self, X: Any, n_samples: int = 1, *, mask: Any = None, controls: Any = None) -> Any:
        """Trajectories of the latents drawn from their posterior, (n_samples, N, T, K)."""
        data, _ = self._sequences(X, mask, controls)
        key = jax.random.key(self.random_state)

        def draw(batch):
            return np.swapaxes(inference.posterior_samples(self.model_, batch, key, n_samples), 0, 1)

        out = np.swapaxes(inference.in_batches(draw, data), 0, 1)
        return in_form(form_of(X, data), out, data.lengths, axis=1)

    def online(self) -> inference.Online:
        """A filter that takes in one frame at a time."""
        self._check_fitted()
        return inference.Online(self.model_, self._one_frame, self._controlled)

    def score(self, X: Any, y: Any = None, *, mask: Any = None, controls: Any = None) -> float:
        """The free energy per observed frame: higher is better. Comparable for the same data and `batch_size` only.

        The model compares each frame with those of the other sequences, so several sequences are needed.
        """
        data, _ = self._sequences(X, mask, controls)
        size = min(self.batch_size, len(data))
        total, observed = 0.0, 0
        for start in range(0, len(data), size):
            first = min(start, len(data) - size)  # the last batch reaches back, so that all have the same size
            energy, count = jax.device_get(
                inference.per_sequence(self.model_, data.take(np.arange(first, first + size)))
            )
            total, observed = total + energy[start - first :].sum(), observed + count[start - first :].sum()
        return float(total / max(observed, 1))

    # -----------------------------------------------------------------------------------------------------------------
    # the auxiliary decoder

    def fit_decoder(
        self, X: Any, *, mask: Any = None, controls: Any = None, steps: int = 1000, learning_rate: float = 2e-3
    ) -> "RPGSSM":
        """Train decoders from the smoothed latents to the frames, to see what the latents hold. The model stays."""
        data, _ = self._sequences(X, mask, controls)
        latents = inference.in_batches(partial(inference.smooth, self.model_), data).mean
        config = TrainingConfig(
            max_steps=steps,
            batch_size=min(self.batch_size, 8),
            learning_rate=learning_rate,
            schedule="cosine",
            seed=int(self.random_state),
        )
        for i, name in enumerate(data.names):
            modality = data.modalities[name]
            decoder = self._build_decoder(name, modality, i)
            pair = Sequences({"frames": modality, "latents": Modality(np.asarray(latents))})
            self.decoders_[name] = train(
                decoder, _decoder_objective, pair, config, label=label, progress=self.verbose
            ).model
        return self

    def _build_decoder(self, name: str, modality: Modality | None, index: int) -> Any:
        shape = self._data_info.frame_shapes[name]
        features = shape if len(shape) == 1 else shape[2:]
        shift, scale = np.zeros(features, np.float32), np.ones(features, np.float32)
        if modality is not None:
            shift, scale = standardisation(_some_frames(modality), _some_mask(modality))
        key = jax.random.fold_in(jax.random.key(int(self.random_state)), 1000 + index)
        return make_decoder("auto", self.latent_dim, shape, key=key, shift=shift, scale=scale)

    def reconstruct(self, X: Any, *, mask: Any = None, controls: Any = None) -> Any:
        """The frames that the auxiliary decoder expects for the smoothed latents; `fit_decoder` first."""
        data, _ = self._sequences(X, mask, controls)
        latents = inference.in_batches(partial(inference.smooth, self.model_), data).mean
        return self._decoded(latents, form_of(X, data), data.lengths)

    def decode(self, latents: Any) -> Any:
        """The frames that the auxiliary decoder expects for given latents (..., K)."""
        self._check_fitted()
        z = np.asarray(latents, np.float32)
        return self._decoded(z, "array", None)

    def _decoded(self, z, form, lengths):
        if not self.decoders_:
            raise NotFittedError("there is no auxiliary decoder yet: call fit_decoder(X) first")
        out = {
            name: in_form(form, np.asarray(jax.jit(type(d).mean)(d, z)), lengths) for name, d in self.decoders_.items()
        }
        return next(iter(out.values())) if len(out) == 1 else out

    # -----------------------------------------------------------------------------------------------------------------
    # looking at it, keeping it

    @property
    def transition_(self) -> np.ndarray:
        """The matrix A of the chain."""
        self._check_fitted()
        prior: Any = self.model_.prior
        if not hasattr(prior, "A"):
            raise AttributeError("this prior has no single transition matrix: A depends on the controls")
        return np.asarray(prior.A)

    def summary(self) -> str:
        """The model, its data and its training in a few lines."""
        self._check_fitted()
        leaves = [x for x in jax.tree.leaves(self.model_) if hasattr(x, "size")]
        kind = self._prior_kind(self._data_info)
        form = f"{'data-dependent' if self.data_dependent else 'constant'} {self.precision}"
        lines = [
            f"RP-GSSM with {self.latent_dim} latent dimensions, {kind} prior, {form} precision",
            *(
                f"  {name}: frames {'×'.join(map(str, shape))}, {type(self.model_.recognition[name].encoder).__name__}"
                for name, shape in sorted(self._data_info.frame_shapes.items())
            ),
            f"  {sum(x.size for x in leaves):,} parameters",
            f"fitted to {self._data_info.description}",
            f"  {self.n_steps_} steps ({self.stopped_}); kept the model of step {self.best_step_}",
        ]
        loss = self.history_["loss"]
        lines.append(f"  loss {loss[0]:.3f} at first, {loss[-1]:.3f} at last")
        if "validation_loss" in self.history_:
            held_out = self.history_["validation_loss"]
            lines.append(f"  held-out loss {np.nanmin(held_out):.3f} at best")
        if kind in ("stationary", "free", "controlled"):
            lines += ["dynamics (eigenvalues of A)", *_timescales(self.transition_)]
        return "\n".join(lines)

    def save(self, directory: str | Path, *, overwrite: bool = False) -> Path:
        """Write the model to a folder: config.json, weights.safetensors and a README. See `load`."""
        self._check_fitted()
        directory = Path(directory)
        params = self.get_params(deep=False)
        own = [
            name
            for name, shape in self._data_info.frame_shapes.items()
            if not isinstance(self._encoder(name, shape), str)
        ]
        if own:
            params["encoder"] = "custom"
        elif isinstance(params["encoder"], Mapping):
            params["encoder"] = dict(params["encoder"])
        if not isinstance(params["initial_transition"], str):
            params["initial_transition"] = np.asarray(params["initial_transition"], float).tolist()
        params["checkpoint_dir"] = None
        config = {
            "estimator": "RPGSSM",
            "parameters": params,
            "data": asdict(self._data_info),
            "custom_encoders": own,
            "decoders": sorted(self.decoders_),
            "training": {
                "steps": self.n_steps_,
                "best_step": self.best_step_,
                "stopped": self.stopped_,
                "notes": self.notes_,
                "history": {name: [None if np.isnan(v) else float(v) for v in x] for name, x in self.history_.items()},
            },
        }
        try:
            json.dumps(config)
        except TypeError as error:
            raise ValueError(f"a setting of this estimator cannot be saved: {error}") from None
        trees = {"model": self.model_} | {f"decoder-{name}": d for name, d in self.decoders_.items()}
        persistence.write(directory, config, trees, self._card(own), overwrite)
        return directory

    @classmethod
    def load(cls, directory: str | Path, *, encoder: Any = None) -> "RPGSSM":
        """Read a saved model. If its encoder was a module of your own, pass one like it (its weights are replaced)."""
        directory = Path(directory)
        config = persistence.read_config(directory)
        if config.get("estimator") != "RPGSSM":
            raise ValueError(f"{directory} holds a {config.get('estimator')}, not an RPGSSM")
        parameters = dict(config["parameters"])
        if config["custom_encoders"]:
            if encoder is None:
                raise ValueError(
                    f"the model in {directory} was fitted with an encoder of your own for "
                    f"{', '.join(config['custom_encoders'])}: pass the module again, load(directory, encoder=module)"
                )
            parameters["encoder"] = encoder
        elif encoder is not None:
            raise ValueError(f"the model in {directory} has the library's own encoder: leave encoder= out")
        if not isinstance(parameters["initial_transition"], str):
            parameters["initial_transition"] = np.asarray(parameters["initial_transition"])
        self = cls(**parameters)
        data = config["data"]
        shapes = {name: tuple(shape) for name, shape in data["frame_shapes"].items()}
        self._data_info = DataInfo(shapes, data["control_dim"], data["n_control_values"], data["description"])
        names = sorted(shapes)
        trees = {"model": self._build(self._data_info, None, int(self.random_state))}
        trees |= {f"decoder-{n}": self._build_decoder(n, None, names.index(n)) for n in config["decoders"]}
        loaded = persistence.read_weights(directory, trees)
        self.model_ = loaded.pop("model")
        self.decoders_ = {name.removeprefix("decoder-"): d for name, d in loaded.items()}
        training = config["training"]
        self.n_steps_, self.best_step_, self.stopped_ = (training[k] for k in ("steps", "best_step", "stopped"))
        self.notes_ = training["notes"]
        self.history_ = {
            name: np.array([np.nan if v is None else v for v in x]) for name, x in training["history"].items()
        }
        self.n_features_in_ = int(np.prod(shapes[names[0]]))
        return self

    def _card(self, own: list[str]) -> str:
        shapes = "\n".join(
            f"| `{name}` | {'×'.join(map(str, shape))} |"
            for name, shape in sorted(self._data_info.frame_shapes.items())
        )
        argument = ", encoder=your_module" if own else ""
        return (
            "# RP-GSSM model\n\n"
            f"Saved by rpgssm {persistence.__version__} (jax {jax.__version__}).\n\n"
            "```python\nfrom rpgssm import RPGSSM\n\n"
            f'model = RPGSSM.load("path/to/this/folder"{argument})\nlatents = model.transform(x)  # (N, T, '
            f"{self.latent_dim})\n```\n\n"
            f"| modality | frame |\n|---|---|\n{shapes}\n\n```\n{self.summary()}\n```\n"
        )

    # -----------------------------------------------------------------------------------------------------------------
    # details

    def _check_fitted(self) -> None:
        if not hasattr(self, "model_"):
            raise NotFittedError("this RPGSSM is not fitted yet: call fit(X) first, or RPGSSM.load(directory)")

    def _sequences(self, X: Any, mask: Any, controls: Any) -> tuple[Sequences, list[str]]:
        """Data for a fitted model: frames must be as they were."""
        self._check_fitted()
        data, notes = as_sequences(X, mask=mask, controls=controls, frame_shapes=self._data_info.frame_shapes)
        if self._controlled and data.controls is None:
            raise ValueError("the model was fitted with controls: pass controls= here too")
        if not self._controlled and data.controls is not None:
            raise ValueError("the model was fitted without controls: leave controls= out")
        return data, notes

    def _one_frame(self, frame: Any) -> Sequences:
        """One frame as a batch of one sequence of one frame, always with a mask so that nothing is compiled twice."""
        shapes = self._data_info.frame_shapes
        given = frame if isinstance(frame, Mapping) else {next(iter(shapes)): frame}
        if len(shapes) > 1 and not isinstance(frame, Mapping) and frame is not None:
            raise ValueError(
                f"pass a mapping with the modalities {', '.join(sorted(shapes))}, None where one is missing"
            )
        if unknown := set(given) - set(shapes):
            raise ValueError(
                f"the frame has the modality {sorted(unknown)[0]!r}; the model knows {', '.join(sorted(shapes))}"
            )
        modalities = {}
        for name, shape in shapes.items():
            value = given.get(name)
            scale = 1.0
            if value is None:
                x, seen = np.zeros(shape, np.float32), False
            else:
                x = np.asarray(value)
                if x.shape != shape and not (x.ndim == 0 and shape == (1,)):
                    raise ValueError(f"the frame of {name} has shape {x.shape}, not {shape}")
                if x.dtype in (np.uint8, np.uint16) and len(shape) > 1:
                    scale = 1 / np.iinfo(x.dtype).max
                x = np.asarray(x, np.float32).reshape(shape) * np.float32(scale)
                seen = not np.isnan(x).any()
                if np.isinf(x).any():
                    raise ValueError(f"the frame of {name} holds an infinite value: pass None if it is missing")
                x = x if seen else np.zeros(shape, np.float32)
            modalities[name] = Modality(x[None, None], np.full((1, 1), seen))
        return Sequences(modalities)

    @property
    def _controlled(self) -> bool:
        return self._prior_kind(self._data_info) in ("controlled", "network")

    @property
    def _discrete(self) -> bool:
        return self._data_info.n_control_values is not None

    def _split_controls(self, X: Any, controls: Any, steps: int) -> tuple[Any, Any]:
        """Controls of the context as the user gave them, and those of the steps ahead as (N, steps + 1, ...)."""
        self._check_fitted()
        if controls is None:
            return None, None
        shape = as_sequences(X, frame_shapes=self._data_info.frame_shapes)[0]
        axes = 1 if self._discrete else 2
        rows = [np.asarray(c) for c in controls] if isinstance(controls, list | tuple) else None
        if rows is None:
            u = np.asarray(controls)
            rows = [u] if u.ndim == axes else list(u)
        lengths = np.full(len(shape), shape.time) if shape.lengths is None else np.asarray(shape.lengths)
        if len(rows) != len(shape):
            raise ValueError(f"controls are given for {len(rows)} sequences, but X has {len(shape)}")
        ahead = []
        for n, (row, length) in enumerate(zip(rows, lengths, strict=True)):
            if len(row) not in (length + steps - 1, length + steps):
                raise ValueError(
                    f"controls of sequence {n} have {len(row)} frames: a forecast needs one for each of its {length} "
                    f"frames and of the {steps} steps to come"
                )
            part = row[length - 1 : length + steps - 1]
            ahead.append(np.concatenate([part, part[-1:]]))
        context = [row[:length] for row, length in zip(rows, lengths, strict=True)]
        stacked = np.stack(context) if shape.lengths is None and not isinstance(X, list | tuple) else context
        return (stacked[0] if form_of(X, shape) == "one" else stacked), _as_controls(np.stack(ahead))

    def _frame_ndim(self, X: Any) -> Any:
        """What frames are, as far as the encoder says it."""
        names = X.keys() if isinstance(X, Mapping) else None

        def ndim(spec):
            return {"cnn": 2, "cnn-paper": 2, "linear": None, "mlp": None}.get(spec) if isinstance(spec, str) else None

        if names is None:
            return ndim(self.encoder)
        given = self.encoder if isinstance(self.encoder, Mapping) else dict.fromkeys(names, self.encoder)
        found = {name: ndim(given.get(name)) for name in names}
        return {name: n for name, n in found.items() if n is not None} or None

    def _encoder(self, name: str, shape: tuple[int, ...]) -> Any:
        spec = self.encoder
        if isinstance(spec, Mapping):
            if name not in spec:
                raise ValueError(f"encoder has no entry for the modality {name!r}")
            spec = spec[name]
        if isinstance(spec, str) and spec == "auto":
            return "cnn" if len(shape) >= 2 and min(shape[:2]) >= 8 else "mlp"
        return spec

    def _prior_kind(self, info: DataInfo) -> Any:
        controlled = info.control_dim is not None or info.n_control_values is not None
        if self.prior == "auto":
            return "controlled" if controlled else "stationary"
        if self.prior in ("controlled", "network") and not controlled:
            raise ValueError(f"prior={self.prior!r} needs controls: pass fit(X, controls=...)")
        if controlled and self.prior in ("stationary", "free"):
            raise ValueError(f"prior={self.prior!r} has no use for controls: choose 'controlled' or 'network'")
        return self.prior

    def _describe(self, data: Sequences) -> DataInfo:
        for name in ("latent_dim", "max_steps", "batch_size", "n_init"):
            value = getattr(self, name)
            if not isinstance(value, int | np.integer) or value < 1:
                raise ValueError(f"{name} is {value!r}: it must be a whole number of at least 1")
        dim = values = None
        if data.controls is not None:
            if data.controls.ndim == 2:
                values = int(np.max(data.controls)) + 1
            else:
                dim = data.controls.shape[-1]
        return DataInfo(dict(data.frame_shapes), dim, values, data.describe().replace("\n", "; "))

    def _seeds(self) -> list[int]:
        return [int(self.random_state) + i for i in range(self.n_init)]

    def _window(self, data: Sequences) -> int | None:
        if self.window != "auto":
            return self.window
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


def _decoder_objective(decoder, batch, key):
    del key
    frames = batch.modalities["frames"]
    loss, info = decoder_loss(decoder, batch.modalities["latents"].values, frames.frames(), frames.mask)
    return loss, info


def _best_loss(trained) -> float:
    name = "validation_loss" if "validation_loss" in trained.history else "loss"
    column = trained.history[name]
    column = column[np.isfinite(column)]
    if trained.error is not None or not len(column):
        return float("nan")
    return float(column.min() if name == "validation_loss" else column[-1])


def _some_frames(modality: Modality, most: int = 2_000_000) -> np.ndarray:
    """Frames as floats, thinned out along sequences where they are many: for means and standard deviations."""
    values = modality.values
    step = max(1, values.size // (most * 50))
    return np.asarray(values[::step], np.float32) * np.float32(modality.scale)


def _some_mask(modality: Modality, most: int = 2_000_000) -> np.ndarray | None:
    step = max(1, modality.values.size // (most * 50))
    return None if modality.mask is None else np.asarray(modality.mask[::step])


def _as_controls(u: np.ndarray) -> np.ndarray:
    return u.astype(np.int32) if np.issubdtype(u.dtype, np.integer) else u.astype(np.float32)


def _timescales(A: np.ndarray, most: int = 6) -> list[str]:
    """Eigenvalues of A as decay times and periods, the slowest first, one of each conjugate pair."""
    eigenvalues = sorted(np.linalg.eigvals(A), key=abs, reverse=True)
    lines = []
    for value in eigenvalues:
        if value.imag < -1e-9:
            continue
        modulus, angle = abs(value), abs(np.angle(value))
        decay = f"{-1 / np.log(modulus):.1f} frames" if 0 < modulus < 1 else "none"
        period = f"period {2 * np.pi / angle:.1f} frames" if angle > 1e-6 else "no oscillation"
        lines.append(f"  |λ| = {modulus:.4f}: memory {decay}, {period}")
    return lines[:most] + (["  ..."] if len(lines) > most else [])
