"""Conversion of arrays, lists and mappings: the axes that count sequences and frames."""

import jax
import numpy as np
import pytest

from rpgssm.data import Recording, as_sequences

from .made import only, real

# ---------------------------------------------------------------------------------------------------------------------
# shapes


@pytest.mark.parametrize(
    ("shape", "frame_ndim", "result"),
    [
        ((7,), None, (1, 7, 1)),
        ((7, 3), None, (1, 7, 3)),
        ((2, 7, 3), None, (2, 7, 3)),
        ((2, 7, 5, 6), None, (2, 7, 5, 6)),
        ((2, 7, 5, 6, 3), None, (2, 7, 5, 6, 3)),
        ((7,), 0, (1, 7, 1)),
        ((2, 7), 0, (2, 7, 1)),
        ((7,), 1, (1, 7, 1)),
        ((7, 3), 1, (1, 7, 3)),
        ((2, 7, 3), 1, (2, 7, 3)),
        ((7, 5, 6), 2, (1, 7, 5, 6)),
        ((7, 5, 6, 1), 2, (1, 7, 5, 6, 1)),
        ((7, 5, 6, 3), 2, (1, 7, 5, 6, 3)),
        ((7, 5, 6, 4), 2, (1, 7, 5, 6, 4)),
        ((2, 7, 5, 6), 2, (2, 7, 5, 6)),
        ((2, 7, 5, 6, 3), 2, (2, 7, 5, 6, 3)),
        ((7, 5, 6, 2), 3, (1, 7, 5, 6, 2)),
        ((2, 7, 5, 6, 2), 3, (2, 7, 5, 6, 2)),
    ],
)
def test_axes_by_what_frames_are(shape, frame_ndim, result):
    data = real(*shape)
    sequences, _ = as_sequences(data, frame_ndim=frame_ndim)
    values = only(sequences).values
    assert sequences.names == ("observations",)
    assert values.shape == result
    np.testing.assert_array_equal(values.ravel(), data.ravel())
    assert only(sequences).mask is None
    assert sequences.lengths is None


@pytest.mark.parametrize(
    ("shape", "frame", "result"),
    [
        ((7, 3), (3,), (1, 7, 3)),
        ((2, 7, 3), (3,), (2, 7, 3)),
        ((7,), (1,), (1, 7, 1)),
        ((2, 7), (1,), (2, 7, 1)),
        ((7, 1), (1,), (1, 7, 1)),
        ((7, 5, 6), (5, 6), (1, 7, 5, 6)),
        ((2, 7, 5, 6), (5, 6), (2, 7, 5, 6)),
        ((7, 5, 6), (5, 6, 1), (1, 7, 5, 6, 1)),
        ((2, 7, 5, 6), (5, 6, 1), (2, 7, 5, 6, 1)),
        ((2, 7, 5, 3), (7, 5, 3), (1, 2, 7, 5, 3)),
        ((1, 3), (3,), (1, 1, 3)),
    ],
)
def test_axes_by_the_known_shape_of_frames(shape, frame, result):
    sequences, notes = as_sequences(real(*shape), frame_shapes={"eye": frame})
    assert sequences.names == ("eye",)
    assert only(sequences).values.shape == result
    assert notes == []


def test_what_was_guessed_is_noted():
    assert "read as one sequence of 7 frames" in as_sequences(real(7, 3))[1][0]
    assert "read as one video of 7 frames in colour" in as_sequences(real(7, 5, 6, 3), frame_ndim=2)[1][0]
    assert as_sequences(real(2, 7, 3))[1] == []
    assert as_sequences(real(7, 3), frame_ndim=1)[1] == []


@pytest.mark.parametrize(
    ("shape", "frame_ndim", "message"),
    [
        ((), None, r"data has shape \(\), but it must hold \(N, T, ...\)"),
        ((7, 3), 2, r"data has shape \(7, 3\), but it must hold images"),
        ((2, 7, 5, 6, 3, 1), 2, "must hold images"),
        ((7, 5, 6), 3, "must hold images in colour"),
        ((2, 7, 5, 6), 1, r"must hold vectors: \(N, T, D\)"),
        ((2, 7, 5), 0, "must hold single numbers"),
        ((7, 3), 5, "frame_ndim is 5"),
        ((0, 7, 3), None, "holds nothing"),
        ((2, 0, 3), None, "holds nothing"),
        ((2, 7, 0), None, "holds nothing"),
        ((4, 1, 3), None, "data has one frame per sequence"),
    ],
)
def test_wrong_axes(shape, frame_ndim, message):
    with pytest.raises(ValueError, match=message):
        as_sequences(real(*shape), frame_ndim=frame_ndim)


def test_wrong_known_shape():
    message = r"data has shape \(7, 4\), but frames have shape \(3,\): pass \(N, T, 3\), or \(T, 3\)"
    with pytest.raises(ValueError, match=message):
        as_sequences(real(7, 4), frame_shapes={"x": (3,)})
    with pytest.raises(ValueError, match=r"data\[1\] has frames of shape \(4,\), but they must have shape \(3,\)"):
        as_sequences([real(7, 3), real(7, 4)], frame_shapes={"x": (3,)})


# ---------------------------------------------------------------------------------------------------------------------
# lists and mappings


def test_ragged_list():
    data = [real(4, 2), real(6, 2), real(3, 2)]
    sequences, notes = as_sequences(data)
    modality = only(sequences)
    assert notes == []
    assert modality.values.shape == (3, 6, 2)
    np.testing.assert_array_equal(sequences.lengths, [4, 6, 3])
    assert sequences.lengths.dtype == np.int32
    for n, x in enumerate(data):
        for t in range(6):
            assert modality.mask[n, t] == (t < len(x))
            np.testing.assert_array_equal(modality.values[n, t], x[t] if t < len(x) else 0)


def test_equal_lists_need_no_mask():
    sequences, _ = as_sequences((real(4), real(4)))
    assert only(sequences).values.shape == (2, 4, 1)
    assert only(sequences).mask is None
    assert sequences.lengths is None


def test_list_of_one_video():
    sequences, _ = as_sequences([real(4, 5, 6)])
    assert only(sequences).values.shape == (1, 4, 5, 6)


def test_lists_of_lists():
    sequences, notes = as_sequences([[1.0, 2.0], [3.0, 4.0, 5.0]])
    np.testing.assert_array_equal(only(sequences).values[..., 0], [[1, 2, 0], [3, 4, 5]])
    assert notes == ["data: float64 values are converted to float32"]


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        ([], {}, "data is an empty list"),
        ([1.0, 2.0], {}, r"data\[0\] is a single number"),
        ([real(3, 2), real(0, 2)], {}, r"data\[1\] has no frames"),
        ([real(3, 0)], {}, r"data\[0\] has shape \(3, 0\)"),
        ([real(3, 2), real(3, 4)], {}, r"data\[1\] has frames of shape \(4,\), but those of data\[0\]"),
        ([real(3, 2), real(3)], {}, r"data\[1\] has frames of shape \(1,\)"),
        ([real(3, 2)], {"frame_ndim": 2}, r"data\[0\] has shape \(3, 2\).*images \(T, H, W\)"),
        ([real(3, 2, 2)], {"frame_ndim": 3}, "images in colour"),
        ([real(3, 2, 2)], {"frame_ndim": 1}, "vectors"),
        ([real(3, 2)], {"frame_ndim": 0}, "single numbers"),
        ([real(1, 2), real(1, 2)], {}, "one frame per sequence"),
        ([real(3), ["a", "b"]], {}, r"data\[1\] has dtype <U1"),
        ([real(3), [[1, 2], [3]]], {}, r"data\[1\] is no array"),
    ],
)
def test_wrong_lists(data, settings, message):
    with pytest.raises(ValueError, match=message):
        as_sequences(data, **settings)


def test_modalities():
    data = {"pixels": [real(4, 5, 6), real(3, 5, 6)], "speed": [real(4), real(3)]}
    sequences, _ = as_sequences(data, frame_ndim={"pixels": 2})
    assert sequences.names == ("pixels", "speed")
    assert sequences.frame_shapes == {"pixels": (5, 6), "speed": (1,)}
    np.testing.assert_array_equal(sequences.lengths, [4, 3])
    np.testing.assert_array_equal(sequences.modalities["speed"].mask, sequences.modalities["pixels"].mask)
    again, _ = as_sequences({"speed": real(9), "pixels": real(9, 5, 6)}, frame_shapes=sequences.frame_shapes)
    assert (len(again), again.time) == (1, 9)


@pytest.mark.parametrize(
    ("data", "settings", "message"),
    [
        ({}, {}, "empty mapping"),
        ({1: real(3)}, {}, "modality 1: the names of modalities are strings"),
        ({"a": real(2, 3, 1), "b": real(4, 3, 1)}, {}, r"data\['a'\] has 2 sequences but data\['b'\] has 4"),
        ({"a": real(2, 3, 1), "b": real(2, 4, 1)}, {}, r"sequence 0 has 3 frames in data\['a'\] but 4 in data\['b'\]"),
        ({"a": [real(3), real(4)], "b": [real(3), real(5)]}, {}, "sequence 1 has 4 frames in"),
        ({"a": real(3), "b": "text"}, {}, r"data\['b'\] has dtype <U4"),
        ({"a": real(3)}, {"frame_shapes": {"a": (1,), "b": (2,)}}, "the modalities must be a, b, but data has a"),
        (real(3), {"frame_shapes": {"a": (1,), "b": (2,)}}, "the modalities must be a, b, but data has observations"),
    ],
)
def test_wrong_mappings(data, settings, message):
    with pytest.raises(ValueError, match=message):
        as_sequences(data, **settings)


def test_padded_array_with_lengths():
    data = real(3, 6, 2)
    controls = real(3, 6, 1)
    mask = np.ones((3, 6), bool)
    mask[1, 0] = False
    sequences, _ = as_sequences(data, lengths=[4, 5, 2], mask=mask, controls=controls)
    assert sequences.time == 5
    np.testing.assert_array_equal(sequences.lengths, [4, 5, 2])
    for n, length in enumerate([4, 5, 2]):
        for t in range(5):
            seen = t < length and mask[n, t]
            assert only(sequences).mask[n, t] == seen
            np.testing.assert_array_equal(only(sequences).values[n, t], data[n, t] if seen else 0)
            np.testing.assert_array_equal(sequences.controls[n, t], controls[n, t] if t < length else 0)
    assert as_sequences(data, lengths=[6, 6, 6])[0].lengths is None


@pytest.mark.parametrize(
    ("lengths", "message"),
    [([3, 4], "but data has 3 sequences"), ([1.0, 2.0, 3.0], "dtype float64"), ([6, 7, 1], r"lengths\[1\] is 7"),
     ([6, 6, 0], r"lengths\[2\] is 0"), ([1, 1, 1], "one frame per sequence")],
)  # fmt: skip
def test_wrong_lengths(lengths, message):
    with pytest.raises(ValueError, match=message):
        as_sequences(real(3, 6, 2), lengths=lengths)


def test_sequences_are_not_converted_again():
    sequences, _ = as_sequences(real(3, 6, 2))
    assert as_sequences(sequences) == (sequences, [])
    with pytest.raises(ValueError, match="belong into it"):
        as_sequences(sequences, controls=real(3, 6, 2))
    with pytest.raises(ValueError, match="but they must be"):
        as_sequences(sequences, frame_shapes={"observations": (3,)})


def test_recording():
    data, controls = real(2, 6, 2), real(2, 6, 1)
    sequences, _ = as_sequences(Recording(data, controls=controls, lengths=[6, 4]))
    expected, _ = as_sequences(data, controls=controls, lengths=[6, 4])
    assert sequences.lengths is not None
    for x, y in zip(jax.tree.leaves(sequences), jax.tree.leaves(expected), strict=True):
        np.testing.assert_array_equal(x, y)
    other, _ = as_sequences(Recording(data, controls=controls), controls=2 * controls)
    np.testing.assert_array_equal(other.controls, 2 * controls)
