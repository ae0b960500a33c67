"""Read targets from files: arrays by name, or a table of one recording."""

import csv
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from rpgssm.data import read


def read_targets(path: str | Path, key: Sequence[str] = ()) -> dict[str, object]:
    """Targets by name.

    .npz, HDF5, Zarr and NWB hold one array for each target (`key` chooses some of them), .npy and folders of .npy one
    target with the name of the file. .csv is a table of one recording: names in the first line, then a line for each
    frame; an empty cell is not known.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() == ".csv":
        table = _read_csv(path)
        if unknown := [name for name in key if name not in table]:
            raise ValueError(f"{path} has no column {unknown[0]!r}: it has {', '.join(table)}")
        return {name: table[name] for name in key or table}
    found = read(path, key=list(key) or None).data
    return {str(name): y for name, y in found.items()} if isinstance(found, dict) else {path.stem: found}


def _read_csv(path: Path) -> dict[str, np.ndarray]:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    with path.open(newline="", encoding="utf-8-sig") as file:
        header, *lines = list(csv.reader(file)) or [[]]
    if not header or not lines:
        raise ValueError(f"{path} holds no table: it needs names in the first line, then a line for each frame")
    out = np.full((len(lines), len(header)), np.nan)
    for t, cells in enumerate(lines):
        if len(cells) != len(header):
            raise ValueError(
                f"{path} has {len(cells)} cells in line {t + 2}, but {len(header)} names in the first line"
            )
        for column, cell in enumerate(cells):
            try:
                out[t, column] = float(cell) if cell.strip() else np.nan
            except ValueError:
                raise ValueError(
                    f"{path} holds {cell!r} in line {t + 2}, column {header[column]!r}: it must be a number, or empty"
                ) from None
    return {name.strip(): out[:, column] for column, name in enumerate(header)}
