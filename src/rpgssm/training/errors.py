"""What training raises."""

from typing import TYPE_CHECKING, Any

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
