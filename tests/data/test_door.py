"""What the door lets in, as what, and what it says when it does not."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import Modality, Recording, Sequences, as_sequences

RNG = np.random.default_rng(0)


def real(*shape, dtype=np.float32):
    return RNG.standard_normal(shape).astype(dtype)


def only(sequences) -> Modality:
    (modality,) = sequences.modalities.values()
    return modality


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


def test_what_has_passed_the_door_passes_again():
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


# ---------------------------------------------------------------------------------------------------------------------
# dtypes


@pytest.mark.parametrize(
    ("dtype", "image", "kept", "scale", "note"),
    [
        (np.float32, False, np.float32, 1.0, None),
        (np.float64, False, np.float32, 1.0, "float64 values are converted to float32"),
        (np.float16, False, np.float32, 1.0, "float16 values"),
        (np.longdouble, False, np.float32, 1.0, "values are converted to float32"),
        (jnp.bfloat16, False, np.float32, 1.0, "bfloat16 values"),
        (">f4", False, np.float32, 1.0, None),
        (">f8", True, np.float32, 1.0, "float64 values"),
        (bool, True, np.float32, 1.0, "bool values"),
        (np.int64, False, np.float32, 1.0, "int64 values are converted to float32 as they are"),
        (np.uint8, False, np.float32, 1.0, "uint8 values are converted to float32 as they are"),
        (np.uint8, True, np.uint8, 1 / 255, "uint8 images are scaled by 1/255"),
        (np.uint16, True, np.uint16, 1 / 65535, "uint16 images are scaled by 1/65535"),
        (">u2", True, np.uint16, 1 / 65535, "uint16 images"),
        (np.int32, True, np.float32, 1.0, "int32 values are converted to float32 without scaling"),
    ],
)
def test_dtypes(dtype, image, kept, scale, note):
    data = RNG.integers(0, 2, (2, 4, 3, 3) if image else (2, 4, 3)).astype(dtype)
    before = data.copy()
    sequences, notes = as_sequences(data)
    modality = only(sequences)
    assert modality.values.dtype == kept
    assert modality.values.dtype.isnative
    assert modality.scale == scale
    np.testing.assert_array_equal(modality.values, data.astype(kept))
    np.testing.assert_array_equal(data, before)
    if note is None:
        assert notes == []
    else:
        (found,) = notes
        assert found.startswith("data: ")
        assert note in found


def test_float64_if_asked_for():
    sequences, notes = as_sequences(real(2, 4, 3, dtype=np.float64), controls=real(2, 4, 1), dtype="float64")
    assert only(sequences).values.dtype == sequences.controls.dtype == np.float64
    assert notes == ["controls: float32 values are converted to float64"]
    with jax.enable_x64(False), pytest.raises(ValueError, match="float64, which JAX has switched off"):
        as_sequences(real(2, 4, 3), dtype=np.float64)
    with pytest.raises(ValueError, match="dtype is int32"):
        as_sequences(real(2, 4, 3), dtype=np.int32)


def test_nothing_is_copied_without_need():
    for data in (real(2, 4, 3), np.zeros((2, 4, 3, 3), np.uint8)):
        assert np.shares_memory(only(as_sequences(data)[0]).values, data)


def test_jax_arrays_become_numpy():
    sequences, _ = as_sequences(jnp.ones((2, 4, 3), jnp.float32), mask=jnp.ones((2, 4), bool))
    assert type(only(sequences).values) is np.ndarray


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (np.array([real(3), real(4)], dtype=object), r"data is an array of Python objects.*list\(data\)"),
        (np.array([["a", "b"]]), "data has dtype <U1"),
        (np.array([b"a", b"b"]), "data has dtype |S1"),
        ("words", "data has dtype <U5"),
        (np.ones((2, 3, 1), complex), "data holds complex numbers"),
        (np.array(["2020-01-01"], "datetime64[D]"), "dtype datetime64"),
        (None, "Python objects"),
        ({1, 2}, "Python objects"),
        (np.ma.masked_array(real(3), [True, False, False]), "data is a masked array"),
    ],
)
def test_what_is_no_array_of_numbers(data, message):
    with pytest.raises(ValueError, match=message):
        as_sequences(data)


def test_masked_array_without_masked_entries():
    assert only(as_sequences(np.ma.masked_array(real(3)))[0]).mask is None


# ---------------------------------------------------------------------------------------------------------------------
# missing frames


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_nan_is_missing(dtype):
    data = real(2, 5, 3, dtype=dtype)
    data[0, 1, 2] = data[1, 4] = np.nan
    before = data.copy()
    sequences, notes = as_sequences(data)
    modality = only(sequences)
    for n in range(2):
        for t in range(5):
            missing = (n, t) in ((0, 1), (1, 4))
            assert modality.mask[n, t] != missing
            np.testing.assert_array_equal(modality.values[n, t], 0 if missing else data[n, t].astype(np.float32))
    assert "data: 2 of 10 frames hold NaN and are taken as missing" in notes
    np.testing.assert_array_equal(data, before)
    assert sequences.lengths is None


def test_nan_in_ragged_lists():
    data = [real(3, 1), real(5, 1)]
    data[0][1] = np.nan
    sequences, _ = as_sequences(data)
    np.testing.assert_array_equal(only(sequences).mask, [[1, 0, 1, 0, 0], [1] * 5])
    np.testing.assert_array_equal(sequences.lengths, [3, 5])


def test_large_values_are_not_taken_for_infinite():
    data = np.full((1, 2, 4), 3e38, np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert only(as_sequences(data)[0]).mask is None


@pytest.mark.parametrize("value", [np.inf, -np.inf, 1e39])
def test_infinite_values(value):
    data = real(3, 5, 2, dtype=np.float64)
    data[2, 3, 1] = value
    with pytest.raises(ValueError, match=r"data\['x'\] holds an infinite value .* in sequence 2, frame 3"):
        as_sequences({"x": data})
    mask = np.ones((3, 5), bool)
    mask[2, 3] = False
    modality = only(as_sequences(data, mask=mask)[0])
    np.testing.assert_array_equal(modality.mask, mask)
    np.testing.assert_array_equal(modality.values[2, 3], 0)


def test_mask_and_nan_add_up():
    data, mask = real(2, 3, 1), np.ones((2, 3), bool)
    data[0, 0], mask[1, 2] = np.nan, False
    np.testing.assert_array_equal(only(as_sequences(data, mask=mask)[0]).mask, [[0, 1, 1], [1, 1, 0]])


def test_masked_integers_are_zeroed():
    data, mask = np.full((1, 3, 2, 2), 7, np.uint8), [True, False, True]
    modality = only(as_sequences(data, mask=mask)[0])
    np.testing.assert_array_equal(modality.values[0, :, 0, 0], [7, 0, 7])
    assert data.min() == 7


@pytest.mark.parametrize("kind", ["bool", "int", "float", "list", "padded list"])
def test_kinds_of_masks(kind):
    rows = [[1, 0, 1], [1, 1]]
    padded = [[1, 0, 1], [1, 1, 1]]  # what is said of padding does not matter
    mask = {
        "bool": np.array(padded, bool),
        "int": np.array(padded),
        "float": np.array(padded, float),
        "list": [np.array(row, bool) for row in rows],
        "padded list": padded,
    }[kind]
    sequences, _ = as_sequences([real(3, 1), real(2, 1)], mask=mask)
    np.testing.assert_array_equal(only(sequences).mask, [[1, 0, 1], [1, 1, 0]])


def test_masks_of_modalities():
    data = {"a": real(2, 3, 1), "b": real(2, 3, 1), "c": real(2, 3, 1)}
    some = np.array([[1, 1, 0], [1, 1, 1]], bool)
    sequences, _ = as_sequences(data, mask={"a": some, "b": None})
    np.testing.assert_array_equal(sequences.modalities["a"].mask, some)
    assert sequences.modalities["b"].mask is None
    assert sequences.modalities["c"].mask is None
    shared, _ = as_sequences(data, mask=some)
    assert all((m.mask == some).all() for m in shared.modalities.values())


@pytest.mark.parametrize(
    ("mask", "message"),
    [
        (np.ones((2, 4), bool), r"mask has shape \(2, 4\), but data has 2 sequences of 3 frames.*shape \(2, 3\)"),
        (np.ones((2, 3, 1), bool), r"mask has shape \(2, 3, 1\)"),
        (np.ones(3, bool), r"mask has shape \(3,\)"),
        (np.full((2, 3), 2), "mask holds values other than"),
        (np.full((2, 3), np.nan), "mask holds values other than"),
        ([[1, 1, 1]], "mask has 1 sequences but data has 2"),
        ([[1, 1, 1], [1, 1]], r"mask\[1\] has shape \(2,\), but sequence 1 of data has 3 frames"),
        ({"other": np.ones((2, 3), bool)}, "mask has the modality 'other', which data has not"),
        ("yes", "mask has dtype"),
    ],
)
def test_wrong_masks(mask, message):
    with pytest.raises(ValueError, match=message):
        as_sequences(real(2, 3, 1), mask=mask)


def test_sequences_without_observations_are_noted():
    data = real(3, 4, 1)
    data[[0, 2]] = np.nan
    sequences, notes = as_sequences(data)
    assert "data: nothing is observed in sequences 0, 2" in notes
    assert sequences.observed() == 4


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
