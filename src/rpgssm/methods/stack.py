"""A stack of methods: each stage is trained on the recognised means of the stage below it.

Training uses few directions of the latent space, as few as the likelihood needs. Then a nonlinear readout of the
latents finds more than a linear one. A random layer on top of the recognised means of one frame maps them to many
directions, with products of latents among them. The network below does not change; the layer, a new head and a new
chain are trained, with the recognised means as data. Without a layer only head and chain are new: a chain of another
kind, or of fewer latents, finds other features in the same network.

The layer may also stay as it was drawn (`FixedFeatures`). Then the inputs of the head are fixed, like data, and a
Gaussian with their moments may be their marginal. The gain of a frame may then exceed log N, and the chain uses all of
its latents.
"""

import copy
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import equinox as eqx
import numpy as np
from jax import lax
from jaxtyping import Array, Float, Shaped

from rpgssm.data import Modality, Sequences
from rpgssm.estimator import FRAMES, DataInfo, Estimator, Prepared, answers, joined
from rpgssm.model import Fixed, Model
from rpgssm.nn.build import build_encoders, keys_for
from rpgssm.nn.encoders import LinearEncoder
from rpgssm.nn.heads import Recognition
from rpgssm.nn.random_features import RandomFeatures
from rpgssm.settings import check, declared, setting
from rpgssm.training import History, Optimizer, Report, Trained
from rpgssm.training.checkpoint import prepare as make_ready

from .rpgssm import RPGSSM, EmpiricalMarginal, PooledMarginal, RPGSSMModel, recognised_mean


class FixedRecognition(Recognition, Fixed):
    """A trained network that is not trained further."""


class StackedEncoder(eqx.Module):
    """A layer on the recognised means of a trained network, which is not trained further."""

    trunk: FixedRecognition
    layer: Any

    @property
    def out_dim(self) -> int:
        return self.layer.out_dim

    def __call__(self, frames: Shaped[Array, "n *frame"]) -> Float[Array, "n f"]:
        return self.layer(lax.stop_gradient(recognised_mean(self.trunk, frames[None])[0]))


def compose(lower: RPGSSMModel, upper: RPGSSMModel) -> RPGSSMModel:
    """Compose a model of frames and a model of its recognised means to a model of frames."""
    trunks = {name: FixedRecognition(r.encoder, r.head) for name, r in lower.recognition.items()}
    recognition = {
        name: Recognition(StackedEncoder(trunks[name], r.encoder), r.head) for name, r in upper.recognition.items()
    }
    return RPGSSMModel(upper.prior, recognition)


def stages_of(model: RPGSSMModel) -> int:
    """The number of stages of a model."""
    encoder, count = next(iter(model.recognition.values())).encoder, 1
    while isinstance(encoder, StackedEncoder):
        encoder, count = encoder.trunk.encoder, count + 1
    return count


def _are_stages(value: object) -> bool:
    return isinstance(value, list | tuple) and len(value) > 1 and all(isinstance(stage, RPGSSM) for stage in value)


class Stack(Estimator):
    """Several RP-GSSMs trained one after the other, each on the recognised means of the one below.

    For a *linear readout* of the latents. The encoder of a stage above the first is the layer between the two:
    `WideLayer(256)` (trained), `FixedFeatures(256)` (not trained; allows `GaussianMarginal`), or "linear" for no layer,
    only a new head. Such a stage takes settings that it leaves open ("auto" or None) from the first one: learning
    rates, the scale of the transition matrix, and the marginal.

    The first stage prepares the data, their windows and the validation data for all stages. Checkpoints of the first
    stage are in its folder; those of later stages are in folders `stage-2` and so on in it.

    Attributes
    ----------
    model_ : the last model, with the encoders of the lower ones under its own.
    n_stages_ : number of trained stages; fewer than in `stages` if training was interrupted.
    init_losses_ : with `n_init` of the first stage above 1, the losses of its models.
    """

    title = "Stack of RP-GSSMs"
    model_type = RPGSSMModel
    takes_controls = True

    stages: Sequence[RPGSSM] = setting(
        (),
        "The estimators, from the first to the last.",
        fits=_are_stages,
        wanted="two or more RPGSSM(), in a list or tuple",
        kw_only=False,
    )

    # of the stages, not of the stack
    latent_dim: ClassVar[Any] = property(lambda self: self.stages[-1].latent_dim)
    random_state: ClassVar[Any] = property(lambda self: self.stages[0].random_state)
    verbose: ClassVar[Any] = property(lambda self: self.stages[0].verbose)

    @property
    def n_stages_(self) -> int:
        self._check_fitted()
        return stages_of(self.model_)

    @property
    def total_steps(self) -> int:
        return sum(stage.total_steps for stage in self.stages)

    def run_in(self, directory: Path, verbose: bool) -> "Stack":
        first, *rest = (stage.set_params(verbose=verbose) for stage in self.stages)
        self.stages = (first.set_params(checkpoint_dir=directory), *rest)
        return self

    def build(self, info: DataInfo, data: Sequences | None, seed: int, stages: int | None = None) -> RPGSSMModel:
        """A model whose arrays are placeholders for saved ones."""
        del data
        model = self.stages[0].build(info, None, seed)
        for number in range(1, len(self.stages) if stages is None else stages):
            info = _of_latents(info, model)
            with _in_stage(number):
                stage = self._above(number, info, None)
                model = compose(model, stage.build(info, None, int(stage.random_state)))
        return model

    def _skeleton(self, info: DataInfo, structure: dict[str, Any]) -> RPGSSMModel:
        return self.build(info, None, int(self.random_state), int(structure["stages"]))

    def _structure(self) -> dict[str, Any]:
        return {"stages": self.n_stages_}

    def _prepare(self, X: object, mask: object, controls: object, *validation: object) -> Prepared:
        for i, stage in enumerate(self.stages):
            with _in_stage(i):
                check(stage)
                if i > 0 and stage.checkpoint_dir is not None:
                    raise ValueError(
                        "checkpoint_dir is a setting of the first stage, for all of them: leave it out here"
                    )
                self._with_layer(i, stage.encoder).objective()  # some settings do not go together
        return self.stages[0]._prepare(X, mask, controls, *validation)

    def _split(self, prepared: Prepared) -> Prepared:
        return self.stages[0]._split(prepared)

    def _learn(
        self,
        prepared: Prepared,
        start: Model | None = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callable[[Report], None]] = (),
    ) -> Trained[Any]:
        if start is not None:
            last = self._with_layer(self.n_stages_ - 1, "linear")
            return _numbered(last._learn(replace(prepared, window=last._window(prepared.data)), start), self.n_stages_)
        self.build(prepared.info, None, int(self.random_state))  # raises before any training if stages do not fit
        first, folder = copy.copy(self.stages[0]), self.stages[0].checkpoint_dir
        options: dict[str, Any] = {"resume": resume, "overwrite": overwrite}
        if folder is not None and overwrite:
            for later in Path(folder).glob("stage-*"):
                make_ready(later, False, True)  # what they were trained on is going to change
        trained = _numbered(first._learn(prepared, callbacks=callbacks, **options), 1)
        own = trained.model  # of the newest stage alone, on the means of the stage below
        for number in range(1, len(self.stages)):
            if trained.interrupted:
                return replace(trained, stopped="interrupted")
            data, held_out = prepared.data, prepared.held_out
            info, data = _of_latents(prepared.info, own), embedded(own, data)
            stage = self._above(number, info, data)
            held_out = None if held_out is None else embedded(own, held_out)
            prepared = Prepared(data, held_out, info, stage._window(data))
            options["directory"] = None if folder is None else Path(folder) / f"stage-{number + 1}"
            shown = [_on_top(trained, callback) for callback in callbacks]
            again = _numbered(stage._learn(prepared, callbacks=shown, **options), number + 1)
            own, trained = again.model, _followed(trained, again)
        if first.n_init > 1:
            self.init_losses_ = first.init_losses_
        return trained

    def _above(self, number: int, info: DataInfo, data: Sequences | None) -> RPGSSM:
        """A stage above the first one, with its layers and all settings resolved."""
        stage = self.stages[number]
        keys = keys_for(int(stage.random_state) + number, len(info.frame_shapes))
        return self._with_layer(number, build_encoders(stage.encoder, info.frame_shapes, data, keys, common=True))

    def _with_layer(self, number: int, encoder: Any) -> RPGSSM:
        """A stage with this encoder, and with open settings from the first stage."""
        stage = self.stages[number]
        if number == 0:
            return stage
        found, changes = self.stages[0].resolved(), {"encoder": encoder, "checkpoint_dir": None}
        optimizer, of_first = stage.optimizer, found["optimizer"]
        if stage.learning_rate is None:
            changes["learning_rate"] = found["learning_rate"]
            if isinstance(optimizer, Optimizer) and optimizer.prior_rate is None and isinstance(of_first, Optimizer):
                changes["optimizer"] = replace(optimizer, prior_rate=of_first.prior_rate)
        if stage.prior.scale is None:
            changes["prior"] = replace(stage.prior, scale=found["prior"].scale)
        if stage.marginal == "auto":
            marginal = found["marginal"]
            changes["marginal"] = marginal if isinstance(marginal, PooledMarginal) else EmpiricalMarginal()
        return RPGSSM(**{name: getattr(stage, name) for name in declared(RPGSSM)} | changes)

    def _score(self, data: Sequences) -> float:
        last = self._with_layer(self.n_stages_ - 1, "linear")
        last.model_ = self.model_
        return last._score(data)

    def _window(self, data: Sequences) -> int | None:
        return self.stages[0]._window(data)

    def _networks(self, name: str) -> str:
        encoder = self.model_.recognition[name].encoder
        layers = []
        while isinstance(encoder, StackedEncoder):
            layers.append(_in_words(encoder.layer))
            encoder = encoder.trunk.encoder
        return f", {' and '.join([type(encoder).__name__, *reversed(layers)])}"


@contextmanager
def _in_stage(number: int) -> Iterator[None]:
    """Name the stage in errors."""
    try:
        yield
    except ValueError as error:
        raise ValueError(f"stage {number + 1} of the stack: {error}") from None


def _on_top(below: Trained[Any], callback: Callable[[Report], None]) -> Callable[[Report], None]:
    """A callback for the next stage, with reports on the whole training so far."""
    seconds = float(below.history["seconds"][-1]) if len(below.history) else 0.0

    def call(report: Report) -> None:
        rows = [row | {"step": row["step"] + below.step, "seconds": row["seconds"] + seconds} for row in report.rows]
        model = compose(below.model, report.model)
        callback(replace(report, model=model, step=report.step + below.step, rows=rows))

    return call


def _numbered(trained: Trained[Any], stage: int) -> Trained[Any]:
    """The training with the number of its stage in a column of the history."""
    columns = trained.history.columns
    return replace(
        trained, history=History.from_columns({**columns, "stage": np.full(len(columns["step"]), float(stage))})
    )


def _followed(below: Trained[Any], again: Trained[Any]) -> Trained[Any]:
    """The result of the stages so far and of one more."""
    return replace(
        again,
        model=compose(below.model, again.model),
        last_model=compose(below.model, again.last_model),
        step=below.step + again.step,
        best_step=below.step + again.best_step,
        history=History.from_columns(joined(below.history.columns, again.history.columns, below.step)),
    )


def _in_words(layer: Any) -> str:
    if isinstance(layer, LinearEncoder):
        return "a new head"
    if isinstance(layer, RandomFeatures):
        return f"{layer.out_dim} components of a random layer of {len(layer.bias)}"
    return f"a layer of {layer.out_dim}"


def _of_latents(info: DataInfo, model: RPGSSMModel) -> DataInfo:
    """The description of the data of the next stage."""
    shapes = dict.fromkeys(info.frame_shapes, (model.latent_dim,))
    return replace(info, frame_shapes=shapes, scales=dict.fromkeys(shapes, 1.0))


def embedded(model: RPGSSMModel, data: Sequences) -> Sequences:
    """The same sequences with recognised means in the place of frames."""
    means = answers(model, "embed", data, max(1, FRAMES // (4 * data.time)))
    modalities = {name: Modality(np.asarray(means[name]), m.mask) for name, m in data.modalities.items()}
    return Sequences(modalities, data.controls, data.lengths)
