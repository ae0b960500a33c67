"""The history as TensorBoard events."""

import math
import sys

import pytest

from rpgssm.training import History, Report, TensorBoard


def test_tensorboard_events(tmp_path):
    pytest.importorskip("tensorboardX")
    history = History(["step", "loss", "validation_loss"], [[1, 2.0, math.nan]])
    board = TensorBoard(tmp_path)
    board(Report(1, history.rows, history, None))
    board(Report(1, history.rows, history, None, model_index=1))
    board.close()
    (alone,) = tmp_path.glob("events*")
    (second,) = (tmp_path / "model-1").glob("events*")
    for file in (alone, second):
        assert b"loss" in file.read_bytes()
        assert b"validation" not in file.read_bytes()


def test_tensorboard_missing(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)
    with pytest.raises(ImportError, match="pip install tensorboardX"):
        TensorBoard(tmp_path)
