"""Estimators trained by gradients: the one training loop, given the settings of an estimator."""

from abc import abstractmethod
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np

from rpgssm.data import Sequences
from rpgssm.models.rpgssm import label
from rpgssm.training import Trained, TrainingConfig, train, train_many
from rpgssm.training.mirroring import before_mirrors

from .base import SequenceEstimator


class GradientEstimator(SequenceEstimator):
    """Adds what is minimised (`_objective`), and what is done after every step (`_project`), if anything."""

    learning_rate: float | None
    prior_learning_rate: float | None
    schedule: Any
    clip_norm: float | None
    batches: Any
    mirror: bool
    validate_every: int
    patience: int | None
    checkpoint_every: int

    _project: ClassVar[Callable[[Any], Any] | None] = None
    _label: ClassVar[Callable[[str], str]] = staticmethod(label)

    @abstractmethod
    def _objective(self) -> Any:
        """What is minimised: (model, batch, key) -> (loss, info)."""

    def _objective_in_training(self) -> Any:
        return before_mirrors(self._objective()) if self.mirror else self._objective()

    def _train(self, models: list[Any], data: Sequences, held_out: Sequences | None, window: Any, **more: Any) -> None:
        config = self._config(window, int(self.max_steps))
        self._take(self._best_of(models, self._objective_in_training(), data, held_out, config, **more))

    def _config(self, window: Any, steps: int) -> TrainingConfig:
        rate, prior_rate = self._rates()
        return TrainingConfig(
            max_steps=steps,
            batch_size=int(self.batch_size),
            learning_rate=rate,
            prior_learning_rate=prior_rate,
            schedule=self.schedule,
            clip_norm=self.clip_norm,
            batches=self.batches,
            window=window,
            validate_every=int(self.validate_every),
            patience=self.patience,
            checkpoint_every=int(self.checkpoint_every),
            seed=int(self.random_state),
        )

    def _best_of(
        self,
        models: list[Any],
        objective: Any,
        data: Sequences,
        held_out: Sequences | None,
        config: TrainingConfig,
        **more: Any,
    ) -> Trained:
        """Train the models together; the best of them."""
        project = type(self)._project
        options: dict[str, Any] = {"validation": held_out, "project": project, "label": type(self)._label, **more}
        options["progress"] = bool(self.verbose)
        if len(models) == 1:
            return train(models[0], objective, data, config, **options)
        results = train_many(models, objective, data, config, **options)
        scores = np.array([_final_loss(r) for r in results])
        if all(r.error is not None for r in results):
            raise next(r.error for r in results if r.error is not None)
        self.init_losses_ = scores
        return results[int(np.nanargmin(scores)) if np.isfinite(scores).any() else 0]

    def _take(self, trained: Trained) -> None:
        """What training gave is what the estimator knows from now on."""
        self.model_ = trained.model
        self.history_ = trained.history.columns
        self.n_steps_, self.best_step_, self.stopped_ = trained.step, trained.best_step, trained.stopped

    def _rates(self) -> tuple[float, float | None]:
        """The learning rate, and that of the prior (None: the same)."""
        if self.learning_rate is None:
            raise ValueError("learning_rate is None: it must be a positive number")
        return float(self.learning_rate), self.prior_learning_rate


def _final_loss(trained: Any) -> float:
    """What models are compared by: the best validation loss, or the last training loss where there is none."""
    validated = "validation_loss" in trained.history.columns
    column = np.asarray(trained.history.columns["validation_loss" if validated else "loss"])
    column = column[np.isfinite(column)]
    if trained.error is not None or not len(column):
        return float("nan")
    return float(column.min() if validated else column[-1])
