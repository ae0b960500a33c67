"""The history as TensorBoard events, written while training."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .loop import Report


class TensorBoard:
    """A callback of `train` that writes every number of the history as TensorBoard scalars.

    With several models at once each has its own folder. Needs the package tensorboardX.
    """

    def __init__(self, directory: Path | str) -> None:
        try:
            from tensorboardX import SummaryWriter  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise ImportError(
                'TensorBoard events need tensorboardX: pip install "rpgssm[tensorboard]", or pip install tensorboardX.'
            ) from error
        self._directory = Path(directory)
        self._new = SummaryWriter
        self._writers: dict[int | None, Any] = {}

    def __call__(self, report: "Report") -> None:
        if report.model_index not in self._writers:
            name = "" if report.model_index is None else f"model-{report.model_index}"
            self._writers[report.model_index] = self._new(str(self._directory / name))
        writer = self._writers[report.model_index]
        for row in report.rows:
            for name, value in row.items():
                if name != "step" and value == value:  # NaN: no number in this row
                    writer.add_scalar(name.replace(".", "/"), value, int(row["step"]))
        writer.flush()

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()
