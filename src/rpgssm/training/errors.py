"""Errors of training, and of models that give latents which are not finite."""

from typing import TYPE_CHECKING

import numpy as np
from jax import Array
from jaxtyping import PyTree

if TYPE_CHECKING:
    from .state import TrainingState


class TrainingDiverged(RuntimeError):
    """The loss, its gradient or the parameters are no longer finite numbers.

    `step` is the number of the step that failed; `model` and `state` are those before it. `terms` are the names of the
    numbers that are not finite. `sequences` are the places in the data of the sequences concerned, or of the whole
    batch if the objective has no terms per sequence.
    """

    def __init__(
        self,
        message: str,
        *,
        step: int,
        terms: tuple[str, ...],
        sequences: tuple[int, ...],
        model: PyTree,
        state: "TrainingState",
    ) -> None:
        super().__init__(message)
        self.step = step
        self.terms = terms
        self.sequences = sequences
        self.model = model
        self.state = state


class LatentsNotFinite(ValueError):
    """The latents of some frames are not finite: training failed, or the frames differ from the training data."""

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
