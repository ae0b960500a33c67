"""Estimators trained by gradients: the one training loop, given the settings of an estimator."""

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from jaxtyping import PRNGKeyArray

from rpgssm.data import Sequences
from rpgssm.model import Model
from rpgssm.nn.build import are_encoders, frame_ndim
from rpgssm.nn.encoders import NAMES, EncoderKind
from rpgssm.settings import declared, identity, setting, written
from rpgssm.training import Report, Trained, Training, data_identity, train, train_many, window_for
from rpgssm.training.checkpoint import holds_run
from rpgssm.training.checkpoint import prepare as make_ready

from ._estimator import Estimator
from ._inference import mean_of_compared, per_sequence
from ._prepare import Prepared, hold_out, prepare

G = TypeVar("G", bound="GradientEstimator")
_ENCODERS = ", ".join(map(repr, ("auto", *NAMES)))


class GradientEstimator(Training, Estimator):
    """An estimator whose model is trained by gradients.

    A subclass says how a model is built (`build`) and what is minimised (`objective`).
    """

    encoder: str | EncoderKind | Mapping[str, Any] | Callable[..., Any] = setting(
        "auto",
        "Network from frames to features: 'auto' (a CNN for images, an MLP for vectors), 'linear', 'mlp', 'cnn', "
        "'cnn-paper', 'keypoints' (a CNN that tells where things are: for things that move about in the frame), or a "
        "module or function of your own from a frame (or a batch of frames) to a vector. For several modalities a "
        "mapping by name.",
        fits=are_encoders,
        wanted=f"one of {_ENCODERS}, a module or function from frame to vector, or a mapping from modalities to these",
        kw_only=False,
    )
    validation_fraction: float | None = setting(
        0.1,
        "Fraction of the sequences held out to choose the best model. None, or too few sequences: none.",
        above=0,
        below=1,
    )
    n_init: int = setting(1, "Models started from different seeds and trained together; the best is kept.", least=1)
    checkpoint_dir: str | Path | None = setting(
        None, "Folder for checkpoints and the history; makes `fit(..., resume=True)` possible.", effect="none"
    )

    @abstractmethod
    def objective(self) -> Callable[..., Any]:
        """What is minimised: (model, batch, key) -> (loss, terms)."""

    def resolved(self) -> dict[str, Any]:
        """The values of settings that were left to the method ("auto" or None)."""
        return {}

    def training_settings(self, window: int | None) -> Training:
        """The settings of the training, with nothing left open."""
        own = {name: getattr(self, name) for name in declared(Training)}
        given = {name: value for name, value in self.resolved().items() if name in own}
        values = {**own, **given, "window": window}
        return Training(**{name: x.item() if isinstance(x, np.generic) else x for name, x in values.items()})

    def _prepare(self, X: object, mask: object, controls: object, *validation: object) -> Prepared:
        return self._split(prepare(X, mask, controls, *validation, frame_ndim=frame_ndim(self.encoder)))

    def _split(self, prepared: Prepared) -> Prepared:
        window = self._window(prepared.data)
        notes = [*prepared.notes, *([f"trained on windows of {window} frames"] if window is not None else [])]
        prepared = replace(prepared, window=window, notes=notes)
        if prepared.held_out is None and self.validation_fraction is not None:
            return hold_out(prepared, float(self.validation_fraction), int(self.random_state))
        return prepared

    def _window(self, data: Sequences) -> int | None:
        return window_for(self.window, data, int(self.batch_size))

    def _learn(
        self,
        prepared: Prepared,
        start: Model | None = None,
        *,
        resume: bool = False,
        overwrite: bool = False,
        callbacks: Sequence[Callable[[Report], None]] = (),
        directory: str | Path | None = None,
    ) -> Trained[Any]:
        settings = self.training_settings(prepared.window)
        seeds = [int(self.random_state) + i for i in range(1 if start is not None else int(self.n_init))]
        data, held_out = prepared.data, prepared.held_out
        models = [start] if start is not None else [self.build(prepared.info, data, seed) for seed in seeds]
        options: dict[str, Any] = {"validation": held_out, "project": _project, "progress": bool(self.verbose)}
        if start is None:
            folder = self.checkpoint_dir if directory is None else directory
            options |= {"resume": resume, "overwrite": overwrite, "directory": folder, "callbacks": callbacks}
            if folder is not None:
                _check_folder(Path(folder), len(models), resume, overwrite)
                options["identity"] = self.identity(prepared.window) | data_identity(data, held_out)
        if len(models) == 1:
            return train(models[0], self.objective(), data, settings, seed=seeds[0], **options)
        return self._best(train_many(models, self.objective(), data, settings, seeds=seeds, **options))

    @property
    def total_steps(self) -> int:
        return int(self.max_steps)

    def run_in(self: G, directory: Path, verbose: bool) -> G:
        return self.set_params(checkpoint_dir=directory, verbose=verbose)

    def identity(self, window: int | None) -> dict[str, Any]:
        """What a run must share with another one to go on from its checkpoints, apart from the data."""
        own = {"method": type(self).__name__} | identity(self) | {"window": window}
        return own | {f"{name} (resolved)": written(value) for name, value in self.resolved().items()}

    def _best(self, results: list[Trained[Any]]) -> Trained[Any]:
        """The best of several models."""
        scores = np.array([_final_loss(r) for r in results])
        if all(r.error is not None for r in results):
            raise next(r.error for r in results if r.error is not None)
        self.init_losses_ = scores
        best = results[int(np.nanargmin(scores)) if np.isfinite(scores).any() else 0]
        return replace(best, stopped="interrupted") if best.interrupted and best.stopped != "max_steps" else best

    def _compared_score(
        self,
        data: Sequences,
        term: str,
        count: Callable[[Sequences, dict[str, Any]], np.ndarray],
        key: Callable[[int], PRNGKeyArray] | None = None,
    ) -> float:
        """Σ term / Σ count over all sequences, in batches whose sequences are compared with each other."""
        objective = self.objective()

        def terms(batch: Sequences, index: int) -> Any:
            found = per_sequence(objective, self.model_, batch, None if key is None else key(index))
            return found[term], count(batch, found)

        return mean_of_compared(terms, data, int(self.batch_size))

    def _in_windows(self, data: Sequences) -> Sequences:
        """Several sequences; a single one as its training windows, side by side."""
        if len(data) > 1:
            return data
        window = self._window(data)
        count = 0 if window is None else data.time // window
        if window is None or count < 2:
            raise ValueError(
                f"a score compares sequences, and there is one of {data.time} frames: pass several, or a longer one"
            )
        return data.window(np.arange(count) * window, window, np.zeros(count, int))


def _check_folder(folder: Path, count: int, resume: bool, overwrite: bool) -> None:
    """Refuse to mix a run with one of another number of models, whose folders are others; `overwrite` removes those."""
    runs = {path for path in (folder, *folder.glob("model-*")) if holds_run(path)}
    own = {folder} if count == 1 else {folder / f"model-{i}" for i in range(count)}
    if resume and runs and runs != own:
        raise ValueError(
            f"Cannot resume the run in {folder}: n_init is {count} and was {len(runs)}. Use the settings and data it "
            "was started with."
        )
    for path in sorted(runs - own):
        make_ready(path, False, overwrite)


def _project(model: Any) -> Any:
    return model.project()


def _final_loss(trained: Trained[Any]) -> float:
    """What models are compared by: the best validation loss, or the last training loss where there is none."""
    validated = "validation_loss" in trained.history.columns
    column = np.asarray(trained.history.columns["validation_loss" if validated else "loss"])
    column = column[np.isfinite(column)]
    if trained.error is not None or not len(column):
        return float("nan")
    return float(column.min() if validated else column[-1])
