"""The history: a table, and its file."""

import math

import numpy as np
import pytest

from rpgssm.training import History, Training, train

from .toys import line, regression, squared_error


def test_history_as_a_file(tmp_path):
    validation = regression(7, seed=1)
    trained = train(line(), squared_error, regression(), Training(max_steps=12), validation=validation, progress=False)
    trained.history.to_csv(tmp_path / "h.csv")
    back = History.from_csv(tmp_path / "h.csv")
    assert back.names == trained.history.names
    assert np.isnan(back["validation_loss"]).tolist() == [True, False]
    for name in back.names:
        np.testing.assert_array_equal(back[name], trained.history[name])
    assert back.names[:2] == ("step", "loss")
    with pytest.raises(KeyError, match="no column 'los'"):
        back["los"]


def test_rows_and_columns():
    history = History(["step", "loss"], [[1, 2.0]])
    history.append({"step": 2})
    assert history["step"].dtype == np.int64
    assert math.isnan(history.row(1)["loss"])
    with pytest.raises(KeyError, match="Not columns of the history: fit"):
        history.append({"step": 3, "fit": 1.0})
    again = History.from_columns(history.columns)
    assert again.names == history.names
    np.testing.assert_array_equal(again.to_array(), history.to_array())
    history.truncate(1)
    assert len(history) == 1
