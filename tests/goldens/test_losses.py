"""The first 50 steps of training give the losses of the goldens."""

import json
from pathlib import Path

import numpy as np
import pytest

from . import cases
from .capture import as_in_use

STORED = json.loads((Path(__file__).parent / "losses.json").read_text(encoding="utf-8"))


@pytest.mark.slow
@pytest.mark.parametrize("name", cases.LOSSES)
def test_losses(name, tmp_path):
    with as_in_use():
        found = cases.LOSSES[name](tmp_path)
    assert list(found) == list(STORED[name])
    for column, before in STORED[name].items():
        now, then = np.array(found[column], float), np.array(before, float)  # None becomes NaN
        np.testing.assert_allclose(now, then, rtol=1e-5, atol=1e-6, err_msg=f"{name}: {column}")


@pytest.mark.parametrize(("whole", "parts"), cases.SAME)
def test_a_resumed_training_is_that_which_was_not_interrupted(whole, parts):
    """Of the stored numbers; `test_losses` compares them with those of today."""
    one, other = (rows_by_step(STORED[name]) for name in (whole, parts))
    assert one == {step: other[step] for step in one}  # where the first part ended there is one row more


def rows_by_step(table):
    rows = [dict(zip(table, row, strict=True)) for row in zip(*table.values(), strict=True)]
    return {row["step"]: row for row in rows}


def test_the_trainings_are_those_stored():
    assert list(STORED) == list(cases.LOSSES)
