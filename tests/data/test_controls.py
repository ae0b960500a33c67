"""Controls at the door."""

import jax
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences, as_sequences

from .made import RNG, real

# ---------------------------------------------------------------------------------------------------------------------
# controls


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
