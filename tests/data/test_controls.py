"""Conversion of controls, and their split at the start of a forecast."""

import jax
import numpy as np
import pytest

from rpgssm.data import Modality, Recording, Sequences, as_sequences
from rpgssm.data.convert import with_future

from .made import RNG, real


@pytest.mark.parametrize(
    ("count", "shape", "result"),
    [
        (2, (2, 5, 3), (2, 5, 3)),
        (2, (2, 5), (2, 5, 1)),
        (1, (5, 3), (1, 5, 3)),
        (1, (5,), (1, 5, 1)),
        (1, (1, 5), (1, 5, 1)),
    ],
)
def test_real_controls(count, shape, result):
    controls = real(*shape)
    sequences, notes = as_sequences(real(count, 5, 2), controls=controls)
    assert sequences.controls.shape == result
    assert sequences.controls.dtype == np.float32
    np.testing.assert_array_equal(sequences.controls.ravel(), controls.ravel())
    assert notes == []


@pytest.mark.parametrize(("count", "shape"), [(2, (2, 5)), (1, (5,)), (1, (1, 5))])
@pytest.mark.parametrize("dtype", [np.int64, np.uint8, bool])
def test_discrete_controls(count, shape, dtype):
    controls = RNG.integers(0, 2, shape).astype(dtype)
    sequences, notes = as_sequences(real(count, 5, 2), controls=controls)
    assert sequences.controls.dtype == np.int32
    np.testing.assert_array_equal(sequences.controls, controls.reshape(count, 5))
    assert notes == []


def test_integer_vectors_become_real():
    sequences, notes = as_sequences(real(2, 5, 2), controls=np.ones((2, 5, 3), int))
    assert sequences.controls.dtype == np.float32
    assert notes == ["controls: int64 values are converted to float32"]


@pytest.mark.parametrize("discrete", [True, False])
def test_ragged_controls(discrete):
    controls = [np.array([1, 2, 3]), np.array([4, 5])] if discrete else [real(3, 2), real(2, 2)]
    sequences, _ = as_sequences([real(3, 1), real(2, 1)], controls=controls)
    for n, row in enumerate(controls):
        np.testing.assert_array_equal(sequences.controls[n, : len(row)], row)
    np.testing.assert_array_equal(sequences.controls[1, 2], 0)


@pytest.mark.parametrize(
    ("controls", "message"),
    [
        (np.full((2, 5, 1), np.nan), "NaN or an infinite value in sequence 0, frame 0"),
        (np.where(np.arange(10).reshape(2, 5) == 8, np.inf, 0.0), "sequence 1, frame 3"),
        (np.where(np.arange(10).reshape(2, 5) == 7, -1, 0), "a negative value in sequence 1, frame 2"),
        (np.full((2, 5), 2**40), "a value too large in sequence 0, frame 0"),
        (real(2, 4, 1), r"controls have shape \(2, 4, 1\), but the data has 2 sequences of 5 frames.*last frame"),
        (real(5, 1), "controls have shape"),
        (real(2, 5, 1, 1), "controls have shape"),
        (real(2, 5, 0), "controls have shape"),
        ([real(5, 1)], "controls have 1 sequences, but the data has 2"),
        ([real(5, 1), real(4, 1)], r"controls\[1\] have shape \(4, 1\), but sequence 1 has 5 frames"),
        ([real(5, 1), real(5, 2)], r"controls\[1\] have shape \(5, 2\) but controls\[0\]"),
        (np.full((2, 5), "a"), "controls has dtype <U1"),
    ],
)
def test_wrong_controls(controls, message):
    with pytest.raises(ValueError, match=message):
        as_sequences(real(2, 5, 1), controls=controls)


def test_a_sequence_made_by_hand_is_the_same():
    data = real(2, 4, 3)
    sequences, _ = as_sequences(data)
    by_hand = Sequences({"observations": Modality(data)})
    assert jax.tree.structure(sequences) == jax.tree.structure(by_hand)


# ---------------------------------------------------------------------------------------------------------------------
# the context of a forecast and the controls ahead


def check_split(context, future, x, u, steps):
    """Against a loop over sequences, for ragged `x` and rows of controls `u`."""
    assert context.time == max(map(len, x))
    for n, (frames, row) in enumerate(zip(x, u, strict=True)):
        length = len(frames)
        np.testing.assert_array_equal(context.controls[n, :length], row[:length])
        assert not context.controls[n, length:].any()
        np.testing.assert_array_equal(future[n], row[length - 1 : length + steps])


@pytest.mark.parametrize("discrete", [True, False])
def test_future_controls(discrete):
    x = [real(5, 2), real(3, 2)]
    u = [RNG.integers(0, 4, len(frames) + 6) if discrete else real(len(frames) + 6, 3) for frames in x]
    known = {"observations": (2,)}, None if discrete else 3, 4 if discrete else None
    check_split(*with_future(x, 4, *known, controls=u), x, u, 4)
    rows = [row[: len(frames) + 4] for row, frames in zip(u, x, strict=True)]
    check_split(*with_future(Recording(x, controls=rows), 4, *known), x, rows, 4)
    # the control of the last frame ahead has no effect, and may be missing
    _, future = with_future(x, 4, *known, controls=[row[:-1] for row in rows])
    np.testing.assert_array_equal(future[0, :-1], rows[0][4:8])


def test_controls_of_the_context_are_replaced():
    x, u = real(2, 5, 2), real(2, 8, 3)
    sequences, _ = as_sequences(x, controls=u[:, :5])
    context, future = with_future(sequences, 3, {"observations": (2,)}, 3, None, controls=u)
    check_split(context, future, list(x), list(u), 3)


def test_a_model_without_controls_has_no_future_ones():
    x = real(2, 5, 2)
    context, future = with_future(x, 3, {"observations": (2,)}, None, None)
    assert future is None
    assert context.controls is None
    np.testing.assert_array_equal(context.modalities["observations"].values, x)


@pytest.mark.parametrize(
    ("controls", "known", "message"),
    [
        (real(2, 8, 3), (None, None), "without controls: leave controls= out"),
        (None, (3, None), "pass controls= for the frames of X and for the steps to come"),
        (real(2, 6, 3), (3, None), r"controls of sequence 0 have 6 frames.*the 5 frames.*the 3 steps to come"),
        (real(3, 8, 3), (3, None), r"controls have shape \(3, 8, 3\), but X has 2 sequences"),
        ([real(8, 3)], (3, None), "controls are given for 1 sequences, but X has 2"),
        (
            real(2, 8, 4),
            (3, None),
            "controls are vectors of length 4, but .* with vectors of length 3",
        ),
        (np.full((2, 8), 5), (None, 4), "controls hold 5 in sequence 0, frame 0.*integers from 0 to 3"),
    ],
)
def test_wrong_future_controls(controls, known, message):
    with pytest.raises(ValueError, match=message):
        with_future(real(2, 5, 2), 3, {"observations": (2,)}, *known, controls=controls)
