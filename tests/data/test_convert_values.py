"""Conversion of dtypes and missing frames."""

import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import as_sequences

from .made import RNG, only, real

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
