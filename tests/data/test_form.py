"""Results go back in the form of the data: one sequence, an array, or a list."""

import numpy as np
import pytest

from rpgssm.data import Recording, as_sequences
from rpgssm.data.form import form_of, in_form

from .made import real


@pytest.mark.parametrize(
    ("shape", "frame", "form"),
    [
        ((1, 1), (1,), "one"),
        ((5,), (1,), "one"),
        ((5, 1), (1,), "one"),
        ((1, 5), (1,), "array"),
        ((1, 5, 1), (1,), "array"),
        ((2, 5), (1,), "array"),
        ((6, 6), (6,), "one"),
        ((1, 6, 6), (6, 6), "one"),
        ((6, 6, 6), (6, 6), "one"),
        ((1, 1, 6, 6), (6, 6), "array"),
        ((4, 8, 8), (8, 8, 1), "one"),
    ],
)
def test_the_form_agrees_with_the_conversion(shape, frame, form):
    x = np.zeros(shape, np.float32)
    data, _ = as_sequences(x, frame_shapes={"a": frame})
    assert form_of(x, data) == form
    assert form == "array" or len(data) == 1


@pytest.mark.parametrize(
    ("data", "form"),
    [
        ([real(4, 2), real(4, 2)], "list"),
        ({"a": [real(4, 2)], "b": [real(4, 3)]}, "list"),
        ({"a": real(4, 2), "b": real(4, 3)}, "one"),
        ({"a": real(1, 4, 2), "b": real(1, 4, 3)}, "array"),
        (Recording(real(4, 2)), "one"),
        (Recording(real(2, 4, 2), lengths=[4, 3]), "list"),
        (as_sequences(real(4, 2))[0], "array"),
    ],
)
def test_forms(data, form):
    assert form_of(data, as_sequences(data)[0]) == form


def test_results_in_each_form():
    x, lengths = real(2, 5, 3), np.array([5, 2])
    assert in_form("array", x, None) is x
    np.testing.assert_array_equal(in_form("one", x, None), x[0])
    rows = in_form("list", x, lengths)
    assert [row.shape for row in rows] == [(5, 3), (2, 3)]
    np.testing.assert_array_equal(rows[1], x[1, :2])
    drawn = in_form("list", np.stack([x, x]), lengths, axis=1)
    assert [row.shape for row in drawn] == [(2, 5, 3), (2, 2, 3)]
    np.testing.assert_array_equal(in_form("list", x[:, 0, 0].copy(), None), x[:, 0, 0])  # a number per sequence


def test_read_only_results_are_copied_but_repeated_ones_are_not():
    x = real(2, 5)
    x.flags.writeable = False
    assert in_form("array", x, None).flags.writeable
    repeated = np.broadcast_to(x[:1], (3, 5))
    assert in_form("array", repeated, None) is repeated
