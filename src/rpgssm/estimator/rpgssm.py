"""The estimator: `fit` on arrays, then latents, forecasts and a saved model.

Follows the conventions of scikit-learn: settings in the constructor, validation in `fit`, what was learned in
attributes with a trailing underscore. NumPy in, NumPy out, in the form in which the data came.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rpgssm.data import Sequences
from rpgssm.models.encoders import LinearEncoder
from rpgssm.models.priors import make_prior
from rpgssm.models.random_features import RandomFeatures
from rpgssm.models.rpgssm import RPGSSMModel, objective
from rpgssm.models.widening import WideEncoder, is_wide, widened
from rpgssm.training import Report, Trained

from . import inference
from .base import DataInfo
from .building import all_linear, build_recognition, keys_for, marginal_kind, prior_kind, wide_layer
from .gradient import GradientEstimator
from .latents import LatentEstimator
from .saving import SavedEstimator
from .settings import check_settings
from .timescales import timescales

LINEAR_RATES, RATES = (3e-2, 3e-2), (3e-3, 1e-3)  # of the networks, and of the prior
LINEAR_SCALE, SCALE = 0.9, 0.98  # of the transition matrix, at the start
WIDE = "wide"  # folder below that of the checkpoints


class RPGSSM(GradientEstimator, LatentEstimator, SavedEstimator):
    """Recognition-parametrised Gaussian state space model.

    Learns, by maximum likelihood and without reconstructing the observations, a linear Gaussian chain of latents and a
    network that recognises them in each frame.

    Parameters
    ----------
    latent_dim : number of latent dimensions K.
    encoder : "auto" (a CNN for images, an MLP for vectors), "linear", "mlp", "cnn", "cnn-paper", "keypoints" (a CNN
        that tells where things are: for things that move about in the frame), or an Equinox module or JAX function
        from a frame (or a batch of frames) to a vector. For several modalities a mapping by name.
    precision : "diagonal" or "cholesky" (full) precision of the recognition potentials.
    data_dependent : whether the precision is a function of the frame, or one constant. Costs more time, and can say of
        a frame that it shows nothing.
    prior : "auto" (controlled if there are controls, else stationary), "stationary", "free", "controlled", "network".
    marginal : the distribution of observations that the model is given. "empirical": the frames of the batch at the
        same time. "pooled": those at `mixture_times` times, for stationary data. "gaussian": a Gaussian with the
        moments of the batch's frames, for linear encoders with constant precision. "auto": gaussian where it can be,
        else empirical.
    mixture_times : how many times the pooled marginal takes frames from.
    initial_transition : where A starts: "identity", "rotation" (pairs that turn) or "smooth" (pairs of a smooth process
        and its velocity: for things whose velocity matters), each times `initial_scale`, or a matrix.
    initial_scale : see there, below 1. None: 0.9 if all encoders are linear, else 0.98.
    initial_precision : where the precisions start.
    widen : None, or the number of units of a random layer that is put on the trained network; head and chain are then
        trained anew on top of it for `widen_steps`. For a *linear readout* of the latents: training folds up what they
        know, and this spreads it out again (`docs/recipes.md`). 0: no layer, only a new head and chain.
    widen_steps : see there.
    widen_settings : what is set differently in this second training, as a mapping: any of latent_dim, precision,
        data_dependent, marginal, mixture_times, initial_transition, initial_scale, initial_precision, batch_size,
        batches, learning_rate, prior_learning_rate, schedule, clip_norm, window, validate_every, patience. With
        marginal="gaussian" the random layer itself is not trained, and more of the latents are used.
    widen_components : how many principal components of a random layer that is not trained are kept.
    max_steps, batch_size, schedule, clip_norm : of the training.
    learning_rate, prior_learning_rate : of the networks and of the prior. None: 0.03 for both if all encoders are
        linear, else 0.003 and 0.001; a learning rate alone is for both.
    batches : "random", or "alike": batches of sequences (or windows) that look alike. For a background that is
        predictable itself, such as a film: in random batches it alone says which frame is meant.
    mirror : train on pictures mirrored at random (left-right, up-down and, if square, along the diagonal; a batch at a
        time), for scenes without a preferred direction: more backgrounds.
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
        precision: Literal["diagonal", "cholesky"] = "cholesky",
        data_dependent: bool = False,
        prior: Literal["auto", "stationary", "free", "controlled", "network"] = "auto",
        marginal: Literal["auto", "empirical", "pooled", "gaussian"] = "auto",
        mixture_times: int = 8,
        initial_transition: Any = "identity",
        initial_scale: float | None = None,
        initial_precision: float = 0.1,
        widen: int | None = None,
        widen_steps: int = 100,
        widen_settings: Mapping[str, Any] | None = None,
        widen_components: int = 25,
        max_steps: int = 3000,
        batch_size: int = 32,
        learning_rate: float | None = None,
        prior_learning_rate: float | None = None,
        schedule: Literal["constant", "cosine", "exponential", "warmup-cosine"] = "cosine",
        clip_norm: float | None = 10.0,
        batches: Literal["random", "alike"] = "random",
        mirror: bool = False,
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
        self.marginal = marginal
        self.mixture_times = mixture_times
        self.initial_transition = initial_transition
        self.initial_scale = initial_scale
        self.initial_precision = initial_precision
        self.widen = widen
        self.widen_steps = widen_steps
        self.widen_settings = widen_settings
        self.widen_components = widen_components
        self.max_steps = max_steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.prior_learning_rate = prior_learning_rate
        self.schedule = schedule
        self.clip_norm = clip_norm
        self.batches = batches
        self.mirror = mirror
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

    _project = RPGSSMModel.project

    def _objective(self) -> Any:
        marginal = marginal_kind(self.marginal, self.encoder, bool(self.data_dependent))
        pooled = marginal == "pooled"
        return partial(
            objective,
            posterior_gradient=self.posterior_gradient,
            marginal="empirical" if pooled else marginal,
            mixture_times=int(self.mixture_times) if pooled else 1,
        )

    def _train(self, models: list[Any], data: Sequences, held_out: Sequences | None, window: Any, **more: Any) -> None:
        wide = is_wide(models[0])
        later = None if self.widen is None else self._second()  # made now, since some settings are refused
        by = later if wide and later is not None else self
        config = by._config(window, int(self.max_steps))
        trained = self._best_of(models, by._objective_in_training(), data, held_out, config, **more)
        if wide or later is None or trained.stopped == "interrupted":
            return self._take(trained)
        again = self._widened(trained, later, data, held_out, **more)
        self._take(trained)
        before, steps = self.history_, self.n_steps_
        self._take(again)
        self._after(before, steps)

    def _second(self) -> "RPGSSM":
        """An estimator with the settings of the second training."""
        changes = dict(self.widen_settings or {})
        rate, of_prior = self._rates()
        if "learning_rate" not in changes:
            changes = {"learning_rate": rate, "prior_learning_rate": of_prior} | changes
        scale = self._scale() if changes.get("initial_scale") is None else changes["initial_scale"]
        marginal = changes.get("marginal", self.marginal)
        # what a network recognised is far from Gaussian, also where a line is all that is put on it; a layer that is
        # not trained is part of the data
        encoder = "linear" if marginal == "gaussian" or not (self.widen or marginal == "auto") else "mlp"
        changes |= {"max_steps": self.widen_steps, "initial_scale": scale, "encoder": encoder, "widen": None}
        settings: dict[str, Any] = {**self.get_params(deep=False), **changes, "widen_settings": None}
        second = type(self)(**settings)
        try:
            check_settings(second.get_params(deep=False))
            marginal_kind(second.marginal, encoder, bool(second.data_dependent))
        except ValueError as error:
            raise ValueError(f"of the second training (widen_settings): {error}") from None
        return second

    def _widened(
        self,
        trained: Trained,
        second: "RPGSSM",
        data: Sequences,
        held_out: Sequences | None,
        **more: Any,
    ) -> Trained:
        """Put a random layer on what was trained, and train a new head and a new chain on top of it.

        The network below is not trained on: what it recognises is computed once, and takes the place of the frames.
        """
        narrow = trained.model
        data = inference.recognised(narrow, data)
        held_out = None if held_out is None else inference.recognised(narrow, held_out)
        info = DataInfo.of(data)
        if held_out is not None and info.n_control_values is not None:  # some values may occur in what is held out only
            most = max(info.n_control_values, DataInfo.of(held_out).n_control_values or 0)
            info = replace(info, n_control_values=most)
        start = self._build_wide(second, info, data)
        begun, directory = trained.history, more.get("directory")
        seconds = float(begun["seconds"][-1]) if len(begun) else 0.0

        def later(report: Report) -> Report:
            rows = [
                row | {"step": row["step"] + trained.step, "seconds": row["seconds"] + seconds} for row in report.rows
            ]
            return replace(report, model=widened(narrow, report.model), step=report.step + trained.step, rows=rows)

        more |= {
            "callbacks": [lambda report, call=call: call(later(report)) for call in more.get("callbacks", ())],
            "directory": None if directory is None else Path(directory) / WIDE,
        }
        config = second._config(second._window(data), int(second.max_steps))
        again = self._best_of([start], second._objective(), data, held_out, config, **more)
        return replace(again, model=widened(narrow, again.model))

    @property
    def all_steps(self) -> int:
        return int(self.max_steps) + (0 if self.widen is None else int(self.widen_steps))

    @property
    def _n_latents(self) -> int:
        return self.model_.prior.latent_dim

    def _structure(self) -> dict[str, Any]:
        return {"wide": is_wide(self.model_)}

    def _skeleton(self, info: DataInfo, structure: dict[str, Any]) -> RPGSSMModel:
        model = self._build(info, None, int(self.random_state))
        if not structure.get("wide"):
            return model
        shapes = dict.fromkeys(info.frame_shapes, (int(self.latent_dim),))
        return widened(model, self._build_wide(self._second(), replace(info, frame_shapes=shapes), None))

    def _rates(self) -> tuple[float, float | None]:
        if self.learning_rate is not None:
            return float(self.learning_rate), self.prior_learning_rate
        rate, of_prior = LINEAR_RATES if all_linear(self.encoder) else RATES
        return rate, of_prior if self.prior_learning_rate is None else self.prior_learning_rate

    def _build(self, info: DataInfo, data: Sequences | None, seed: int) -> RPGSSMModel:
        return self._model(self.encoder, info, data, seed)

    def _build_wide(self, second: "RPGSSM", info: DataInfo, data: Sequences | None) -> RPGSSMModel:
        """The model that is trained on what another one recognises: a wide layer and a head for each modality."""
        keys = keys_for(int(self.random_state) + 1, len(info.frame_shapes))
        fixed = int(self.widen_components) if second.marginal == "gaussian" else None
        layers = {
            name: wide_layer(shape, int(self.widen or 0), key, None if data is None else data.modalities[name], fixed)
            for key, (name, shape) in zip(keys, sorted(info.frame_shapes.items()), strict=True)
        }
        return second._model(layers, info, data, int(self.random_state))

    def _model(self, encoders: Any, info: DataInfo, data: Sequences | None, seed: int) -> RPGSSMModel:
        of_prior, *keys = keys_for(seed, 1 + 2 * len(info.frame_shapes))
        kind = prior_kind(self.prior, info.controlled)
        controls: dict[str, Any] = {}
        if kind in ("controlled", "network"):
            controls = {"control_dim": info.control_dim, "n_control_values": info.n_control_values}
        recognition = build_recognition(
            encoders,
            info.frame_shapes,
            data,
            keys,
            precision=self.precision,
            data_dependent=bool(self.data_dependent),
            latent_dim=int(self.latent_dim),
            initial_precision=self.initial_precision,
        )
        initial = self.initial_transition
        prior = make_prior(
            kind,
            int(self.latent_dim),
            key=of_prior,
            initial=initial if isinstance(initial, str) else np.asarray(initial, float),
            scale=self._scale(),
            **controls,
        )
        return RPGSSMModel(prior, recognition)

    def _scale(self) -> float:
        if self.initial_scale is None:
            return LINEAR_SCALE if all_linear(self.encoder) else SCALE
        return float(self.initial_scale)

    @property
    def transition_(self) -> np.ndarray:
        """The matrix A of the chain."""
        self._check_fitted()
        prior: Any = self.model_.prior
        if not hasattr(prior, "A"):
            raise AttributeError("this prior has no single transition matrix: A depends on the controls")
        return np.array(prior.A)

    def score(self, X: Any, y: Any = None, *, mask: Any = None, controls: Any = None) -> float:
        """The free energy per observed frame: higher is better. Comparable for the same data and `batch_size` only.

        The model compares each frame with those of the other sequences, so several sequences are needed; a single one
        is cut into windows, as in training.
        """
        data, _ = self._sequences(X, mask, controls)
        data = self._in_windows(data) if len(data) == 1 else data
        objective = (self._second() if is_wide(self.model_) else self)._objective()

        def free_energies(batch, index):
            terms = inference.per_sequence(objective, self.model_, batch, self._key(index))
            return terms["free_energy"], observed_frames(batch)

        return inference.mean_of_compared(free_energies, data, int(self.batch_size))

    def _headline(self) -> str:
        kind = prior_kind(self.prior, self._data_info.controlled)
        form = f"{'data-dependent' if self.data_dependent else 'constant'} {self.precision}"
        return f"RP-GSSM with {self._n_latents} latent dimensions, {kind} prior, {form} precision"

    def _parts(self, name: str) -> str:
        encoder = self.model_.recognition[name].encoder
        if isinstance(encoder, WideEncoder):
            below, layer = type(encoder.trunk.encoder).__name__, encoder.layer
            if isinstance(layer, LinearEncoder):
                return f"{below} and a new head"
            if isinstance(layer, RandomFeatures):
                return f"{below} and {layer.out_dim} components of a random layer of {len(layer.bias)}"
            return f"{below} and a layer of {encoder.out_dim}"
        return type(encoder).__name__

    def _dynamics(self) -> list[str]:
        if not hasattr(self.model_.prior, "A"):
            return []
        return ["dynamics (eigenvalues of A)", *timescales(self.transition_)]


def observed_frames(batch: Sequences) -> np.ndarray:
    """How many observations each sequence has, over all modalities."""
    everything = np.ones((len(batch), batch.time), bool)
    masks = (everything if m.mask is None else np.asarray(m.mask) for m in batch.modalities.values())
    return sum((mask.sum(1) for mask in masks), start=np.zeros(len(batch), int))
