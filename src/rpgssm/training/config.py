"""What can be set for training.

Kept apart from the loop so that the command line can show its help without importing JAX. Every setting is a plain
value: a configuration can be written as JSON and compared with that of a run to be resumed.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

OptimiserName = Literal["adam", "adamw", "nadam", "radam", "adabelief", "lion", "rmsprop", "sgd"]
BatchName = Literal["random", "alike"]
ScheduleName = Literal["constant", "cosine", "exponential", "warmup-cosine"]


@dataclass(frozen=True)
class TrainingConfig:
    """How a model is trained."""

    max_steps: int = 3000
    """Optimiser steps, at most."""

    batch_size: int = 32
    """Sequences per step, all different; all of them if there are fewer."""

    learning_rate: float = 3e-3
    """Step size, before the schedule."""

    prior_learning_rate: float | None = None
    """Step size for the parameters of the prior, before the schedule. None: the same."""

    optimiser: OptimiserName = "adam"
    """Optimiser."""

    beta1: float = 0.9
    """Memory of the optimiser's first moment; the momentum of sgd and rmsprop is set apart."""

    beta2: float = 0.999
    """Memory of the optimiser's second moment."""

    momentum: float = 0.0
    """Momentum of sgd and rmsprop."""

    weight_decay: float = 0.0
    """Decoupled weight decay, whatever the optimiser."""

    schedule: ScheduleName = "constant"
    """How the learning rate changes with the steps."""

    decay_steps: int | None = None
    """Steps over which the learning rate falls to `final_fraction` of itself. None: max_steps."""

    final_fraction: float = 0.01
    """What is left of the learning rate after `decay_steps`."""

    warmup_steps: int | None = None
    """Steps over which the learning rate rises from 0. None: none, but 5 % of decay_steps for warmup-cosine."""

    clip_norm: float | None = 10.0
    """Gradients are scaled down to this norm over all parameters. None: never."""

    batches: BatchName = "random"
    """Batches of random sequences (or windows), or of those that look alike, by their mean frames."""

    window: int | None = None
    """Train on windows of this many frames at random places of longer sequences. None: on whole sequences."""

    steps_per_dispatch: int | Literal["auto"] = "auto"
    """Optimiser steps between two returns to Python; changes no result. auto: about half a second's worth."""

    log_every: int = 10
    """Steps per row of the history: terms are averaged over them."""

    validate_every: int = 100
    """Steps between validations, if there are validation data."""

    patience: int | None = None
    """Stop after this many validations without improvement. None: never."""

    keep_best: bool = True
    """Return the model of the best validation instead of the last one."""

    checkpoint_every: int = 500
    """Steps between checkpoints, if there is a directory for them."""

    seed: int = 0
    """Of the order of the data and of all randomness in training."""

    def __post_init__(self) -> None:
        for name in ("max_steps", "batch_size", "log_every", "validate_every", "checkpoint_every"):
            self._require(name, getattr(self, name) >= 1, "must be at least 1")
        for name in ("decay_steps", "window", "patience"):
            self._require(name, getattr(self, name) is None or getattr(self, name) >= 1, "must be at least 1 or None")
        for name in ("learning_rate", "prior_learning_rate"):
            value = getattr(self, name)
            self._require(
                name, value is None or (math.isfinite(value) and value >= 0), "must be finite and not negative"
            )
        self._require("clip_norm", self.clip_norm is None or self.clip_norm > 0, "must be positive or None")
        self._require("warmup_steps", self.warmup_steps is None or self.warmup_steps >= 0, "must not be negative")
        self._require("final_fraction", 0 < self.final_fraction <= 1, "must be in (0, 1]")
        self._require("weight_decay", self.weight_decay >= 0, "must not be negative")
        for name in ("beta1", "beta2", "momentum"):
            self._require(name, 0 <= getattr(self, name) < 1, "must be in [0, 1)")
        steps = self.steps_per_dispatch
        self._require(
            "steps_per_dispatch", steps == "auto" or (isinstance(steps, int) and steps >= 1), "at least 1 or 'auto'"
        )
        for name, names in (("optimiser", OptimiserName), ("schedule", ScheduleName)):
            self._require(name, getattr(self, name) in get_args(names), f"must be one of {', '.join(get_args(names))}")

    def _require(self, name: str, holds: bool, what: str) -> None:
        if not holds:
            raise ValueError(f"TrainingConfig.{name} = {getattr(self, name)!r}: {what}.")

    @property
    def schedule_steps(self) -> int:
        return self.max_steps if self.decay_steps is None else self.decay_steps

    @property
    def schedule_warmup(self) -> int:
        if self.warmup_steps is not None:
            return self.warmup_steps
        return math.ceil(0.05 * self.schedule_steps) if self.schedule == "warmup-cosine" else 0

    def differences(self, other: dict[str, object]) -> list[str]:
        """The settings of a stored run (as a dictionary) that would make it another run if it went on with these."""
        free = {"patience", "keep_best", "checkpoint_every", "steps_per_dispatch"}
        if self.decay_steps is not None or (self.schedule == "constant" and self.schedule_warmup == 0):
            free.add("max_steps")
        fields = [field for field in self.__dataclass_fields__.values() if field.name not in free]
        before = {field.name: other.get(field.name, field.default) for field in fields}  # older versions had fewer
        return [
            f"{name} is {getattr(self, name)!r} and was {value!r}"
            for name, value in before.items()
            if getattr(self, name) != value
        ]
