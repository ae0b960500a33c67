"""The settings of a training."""

from typing import Literal

import optax

from rpgssm.settings import Behaviour, Effect, setting, with_settings

from .augment import Augmentation
from .optimizer import Adam, Optimizer
from .samplers import RandomWindows, Sampler


class Stopping(Behaviour):
    """When to validate, when to stop, and which model to keep."""

    validate_every: int = setting(
        100, "Steps between validations, if there are validation data.", least=1, effect="end"
    )
    patience: int | None = setting(
        None, "Stop after this many validations without improvement. None: never.", least=1, effect="end"
    )
    keep_best: bool = setting(True, "Keep the model of the best validation instead of the last one.", effect="end")


def _effect_of_max_steps(settings: object) -> Effect:
    optimizer = getattr(settings, "optimizer", None)
    return "steps" if isinstance(optimizer, Optimizer) and optimizer.depends_on_end else "end"


@with_settings
class Training:
    """The settings of a training. Estimators trained by gradients are subclasses."""

    max_steps: int = setting(3000, "Optimizer steps at most.", least=1, effect=_effect_of_max_steps)
    batch_size: int = setting(32, "Sequences (or windows) per step, all of them if there are fewer.", least=1)
    learning_rate: float = setting(3e-3, "Learning rate, before the schedule.", least=0)
    optimizer: Optimizer | optax.GradientTransformation = setting(
        Adam(), "How parameters follow from gradients; or an optax transformation of your own."
    )
    sampler: Sampler = setting(RandomWindows(), "Which sequences or windows make up a batch.")
    augment: Augmentation | None = setting(None, "Random changes of training batches.", neutral=None)
    window: int | Literal["auto"] | None = setting(
        "auto",
        "Frames per training window of longer sequences. 'auto' cuts windows when there are fewer sequences than a "
        "batch needs; None never does.",
        least=2,
    )
    stopping: Stopping = setting(Stopping(), "When to validate, when to stop, and which model to keep.", effect="end")
    checkpoint_every: int = setting(
        500, "Steps between checkpoints, if there is a folder for them.", least=1, effect="none"
    )
