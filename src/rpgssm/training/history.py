"""The table of a training run: one row per `log_every` steps, with loss terms, rates and times."""

import csv
import io
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np


class History:
    """A table of numbers with named columns, `step` first. A missing number is NaN."""

    def __init__(self, names: Iterable[str], rows: Iterable[Iterable[float | int]] | np.ndarray = ()) -> None:
        self.names = tuple(names)
        self._rows = [tuple(float(x) for x in row) for row in rows]

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, name: object) -> bool:
        return name in self.names

    def __getitem__(self, name: str) -> np.ndarray:
        if name not in self.names:
            raise KeyError(f"The history has no column '{name}', but {', '.join(self.names)}.")
        column = self.names.index(name)
        values = np.array([row[column] for row in self._rows], np.float64)
        return values.astype(np.int64) if name == "step" else values

    @property
    def columns(self) -> dict[str, np.ndarray]:
        return {name: self[name] for name in self.names}

    @classmethod
    def from_columns(cls, columns: Mapping[str, np.ndarray]) -> "History":
        """The table with these columns."""
        return cls(columns, np.stack([np.asarray(x, np.float64) for x in columns.values()], 1))

    @property
    def rows(self) -> list[dict[str, float]]:
        return [self.row(i) for i in range(len(self))]

    def row(self, index: int) -> dict[str, float]:
        return dict(zip(self.names, self._rows[index], strict=True))

    def append(self, row: Mapping[str, float | int]) -> None:
        unknown = set(row) - set(self.names)
        if unknown:
            raise KeyError(f"Not columns of the history: {', '.join(sorted(unknown))}.")
        self._rows.append(tuple(float(row.get(name, math.nan)) for name in self.names))

    def truncate(self, length: int) -> None:
        del self._rows[length:]

    def to_array(self) -> np.ndarray:
        return np.array(self._rows, np.float64).reshape(len(self), len(self.names))

    def to_csv(self, path: Path | str) -> None:
        """Write the table. A missing number is an empty cell; all others are read back exactly."""
        path = Path(path)
        partial = path.with_name(path.name + ".partial")
        partial.write_text(self._text(0, header=True), encoding="utf-8")
        partial.replace(path)

    def append_to_csv(self, path: Path | str, first: int) -> None:
        """Add the rows from number `first` on to a file."""
        with Path(path).open("a", encoding="utf-8", newline="") as file:
            file.write(self._text(first, header=False))

    @classmethod
    def from_csv(cls, path: Path | str) -> "History":
        with Path(path).open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            names = next(reader)
            return cls(names, ([float(cell) if cell else math.nan for cell in row] for row in reader))

    def _text(self, first: int, header: bool) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if header:
            writer.writerow(self.names)
        for row in self._rows[first:]:
            writer.writerow([int(row[0]), *("" if math.isnan(x) else repr(x) for x in row[1:])])
        return text.getvalue()
