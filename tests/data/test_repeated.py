"""Entries shared by all sequences are stored once, also after concatenation."""

import numpy as np

from rpgssm.data.repeated import concatenate, is_repeated, repeat

ONE, OTHER = np.arange(6.0).reshape(1, 2, 3), np.ones((1, 2, 3))


def test_repeat_makes_no_copy():
    many = repeat(ONE, 5)
    assert many.shape == (5, 2, 3)
    assert is_repeated(many)
    assert np.shares_memory(many, ONE)
    assert repeat(ONE, 1) is ONE
    assert not is_repeated(np.concatenate([ONE, ONE]))


def test_parts_that_agree_are_still_is_repeated():
    whole = concatenate(repeat(ONE, 4), repeat(ONE.copy(), 4)[:3], repeat(ONE, 4)[:1])
    assert is_repeated(whole)
    np.testing.assert_array_equal(whole, np.repeat(ONE, 8, 0))


def test_different_parts_do_not():
    for parts in ([repeat(ONE, 2), repeat(OTHER, 3)], [repeat(ONE, 2), np.concatenate([ONE, OTHER])]):
        whole = concatenate(*parts)
        assert not is_repeated(whole)
        np.testing.assert_array_equal(whole, np.concatenate([np.array(x) for x in parts]))
