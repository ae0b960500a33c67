"""Which frames are hidden, and how models do without them."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.nn.masking import as_missing, draw_hidden, zeroed


def batch(n=200, t=10, lengths=None, mask=None):
    values = jnp.ones((n, t, 2), jnp.float32)
    return Sequences({"x": Modality(values, mask)}, None, lengths)


def drawn(data, size, mode: Any = "window", seed=0) -> np.ndarray:
    return np.asarray(draw_hidden(jax.random.key(seed), data, size, mode))


def test_a_window_has_the_size_and_starts_anywhere():
    hidden = drawn(batch(), 4)
    assert (hidden.sum(1) == 4).all()
    starts = hidden.argmax(1)
    assert all(row[s : s + 4].all() for row, s in zip(hidden, starts, strict=True))
    counts = np.bincount(starts, minlength=7)
    assert len(counts) == 7  # starts 0 to 6
    assert counts.min() > 10  # of 29 expected


def test_random_frames_are_spread_out():
    hidden = drawn(batch(), 4, "random")
    assert (hidden.sum(1) == 4).all()
    assert np.abs(hidden.mean(0) - 0.4).max() < 0.15
    assert (np.diff(hidden.astype(int), axis=1) != 0).sum(1).mean() > 3  # a window would have at most 2


@pytest.mark.parametrize("mode", ["window", "random"])
def test_never_more_than_half_of_what_exists(mode):
    lengths = np.tile([10, 6, 3], 20)
    hidden = drawn(batch(60, lengths=jnp.asarray(lengths)), 20, mode)
    np.testing.assert_array_equal(hidden.sum(1), lengths // 2)
    assert not hidden[np.arange(10) >= lengths[:, None]].any()


def test_each_step_hides_others():
    assert (drawn(batch(), 4, seed=0) != drawn(batch(), 4, seed=1)).any()


def test_none_and_nonsense():
    assert draw_hidden(jax.random.key(0), batch(), 0) is None
    data = batch()
    assert as_missing(data, None) is data
    assert zeroed(data, None) is data
    with pytest.raises(ValueError, match="'window', 'random'"):
        draw_hidden.__wrapped__(jax.random.key(0), batch(), 3, "gap")  # past the check of types


def test_hidden_frames_are_missing_or_zero():
    hidden = jnp.zeros((2, 10), bool).at[0, 3:5].set(True)
    seen = jnp.ones((2, 10), bool).at[1, 0].set(False)
    for mask in (None, seen):
        data = batch(2, mask=mask)
        missing, zero = as_missing(data, hidden).modalities["x"], zeroed(data, hidden).modalities["x"]
        np.testing.assert_array_equal(missing.mask, ~hidden if mask is None else seen & ~hidden)
        np.testing.assert_array_equal(missing.values, data.modalities["x"].values)
        assert zero.mask is mask
        np.testing.assert_array_equal(zero.values[..., 0], 1.0 - np.asarray(hidden))
