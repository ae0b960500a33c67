"""What training raises, and what is raised of a model whose training went wrong unnoticed."""

from typing import TYPE_CHECKING, Any

import numpy as np
from jax import Array

if TYPE_CHECKING:
    from .state import TrainingState


class TrainingDiverged(RuntimeError):
    """The loss, its gradient or the parameters stopped being finite numbers.

    `model` and `state` are the last good ones, from before the step that failed. `terms` are the names of what was not
    finite, `sequences` the places in the data of the sequences concerned (of the whole batch, if the objective does not
    tell them apart), `step` the number of the step that failed.
    """

    def __init__(
        self,
        message: str,
        *,
        step: int,
        terms: tuple[str, ...],
        sequences: tuple[int, ...],
        model: Any,
        state: "TrainingState",
    ) -> None:
        super().__init__(message)
        self.step = step
        self.terms = terms
        self.sequences = sequences
        self.model = model
        self.state = state


class LatentsNotFinite(ValueError):
    """A trained model gives latents that are not finite numbers for some frames: its training went astray, or the
    frames are unlike those that it was trained on."""

    def __init__(self, model: str, sequence: int, frame: int) -> None:
        super().__init__(
            f"the latents of {model} are not finite in sequence {sequence} from frame {frame} on: look for extreme "
            "values there; if it happens with the training data, train again with a smaller learning_rate"
        )
        self.sequence, self.frame = sequence, frame


def check_finite(mean: np.ndarray, model: str, first: int = 0, lengths: Array | np.ndarray | None = None) -> None:
    """Raise `LatentsNotFinite` unless all means (n, t, k) are finite, up to the lengths of their sequences.

    `first` is the number of the first of these sequences.
    """
    bad = ~np.isfinite(mean).all(-1)
    if lengths is not None:
        bad &= np.arange(mean.shape[1]) < np.asarray(lengths)[:, None]
    if bad.any():
        sequence, frame = np.argwhere(bad)[0]
        raise LatentsNotFinite(model, first + int(sequence), int(frame))
