"""One frame is converted as a sequence of them is."""

import numpy as np
import pytest

from rpgssm.data import as_sequences
from rpgssm.data.convert import one_frame

from .made import RNG, only, real


@pytest.mark.parametrize(
    "frames",
    [
        real(2, 3),
        real(2, 4, 5, dtype=np.float64),
        RNG.integers(0, 256, (2, 4, 5), np.uint8),
        RNG.integers(0, 65536, (2, 4, 5, 3), np.uint16),
        RNG.integers(0, 256, (2, 3), np.uint8),
        RNG.integers(0, 2, (2, 3)).astype(bool),
    ],
    ids=lambda x: f"{x.dtype}-{x.ndim}",
)
def test_values_are_those_of_sequences(frames):
    sequences, _ = as_sequences(frames[None], frame_ndim=frames.ndim - 1)
    expected = only(sequences)
    for t, frame in enumerate(frames):
        batch = only(one_frame(frame, {"a": expected.frame_shape}))
        assert batch.values.dtype == np.float32
        assert batch.scale == 1.0
        np.testing.assert_array_equal(batch.mask, [[True]])
        np.testing.assert_array_equal(batch.values[0, 0], expected.frames()[0, t])


def test_an_axis_of_length_one_may_be_left_out():
    assert only(one_frame(3.0, {"a": (1,)})).values.shape == (1, 1, 1)
    assert only(one_frame(real(4, 5), {"a": (4, 5, 1)})).values.shape == (1, 1, 4, 5, 1)


@pytest.mark.parametrize("frame", [None, np.array([1.0, np.nan]), {"a": None}, {}])
def test_missing_frames_are_masked_zeros(frame):
    batch = only(one_frame(frame, {"a": (2,)}))
    np.testing.assert_array_equal(batch.mask, [[False]])
    np.testing.assert_array_equal(batch.values, np.zeros((1, 1, 2), np.float32))


def test_modalities():
    batch = one_frame({"left": np.ones(2)}, {"left": (2,), "right": (3,)})
    assert batch.modalities["left"].mask.all()
    assert not batch.modalities["right"].mask.any()


@pytest.mark.parametrize(
    ("frame", "message"),
    [
        (real(3), r"the frame of a has shape \(3,\), but frames have shape \(2,\): pass one frame"),
        (np.array([1.0, np.inf]), "the frame of a holds an infinite value: pass None"),
        (np.array([1.0, 1e300]), "infinite value"),
        (np.array(["x", "y"]), "the frame of a has dtype <U1"),
        ({"b": None}, "the frame has the modality 'b'; the model knows a"),
    ],
)
def test_wrong_frames(frame, message):
    with pytest.raises(ValueError, match=message):
        one_frame(frame, {"a": (2,)})


def test_several_modalities_need_a_mapping():
    with pytest.raises(ValueError, match="mapping with the modalities a, b"):
        one_frame(np.ones(2), {"a": (2,), "b": (2,)})
