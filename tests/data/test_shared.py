"""What is the same for all sequences is stored once, and stays so."""

import numpy as np

from rpgssm.data.shared import joined, spread, stored_once

ONE, OTHER = np.arange(6.0).reshape(1, 2, 3), np.ones((1, 2, 3))


def test_spread_makes_no_copy():
    many = spread(ONE, 5)
    assert many.shape == (5, 2, 3)
    assert stored_once(many)
    assert np.shares_memory(many, ONE)
    assert spread(ONE, 1) is ONE
    assert not stored_once(np.concatenate([ONE, ONE]))


def test_parts_that_agree_are_still_stored_once():
    whole = joined(spread(ONE, 4), spread(ONE.copy(), 4)[:3], spread(ONE, 4)[:1])
    assert stored_once(whole)
    np.testing.assert_array_equal(whole, np.repeat(ONE, 8, 0))


def test_parts_that_differ_are_not():
    for parts in ([spread(ONE, 2), spread(OTHER, 3)], [spread(ONE, 2), np.concatenate([ONE, OTHER])]):
        whole = joined(*parts)
        assert not stored_once(whole)
        np.testing.assert_array_equal(whole, np.concatenate([np.array(x) for x in parts]))
