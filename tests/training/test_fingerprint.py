"""Fingerprints of data: all of small arrays counts, and blocks of large ones."""

from dataclasses import replace

import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.training.fingerprint import data_identity, fingerprint


@pytest.fixture
def data():
    x = np.random.default_rng(0).normal(size=(6, 5, 3)).astype(np.float32)
    mask = np.ones((6, 5), bool)
    mask[1, 2] = False
    return Sequences({"x": Modality(x, mask)})


def changed(data, **parts):
    return Sequences({"x": replace(data.modalities["x"], **parts)})


def test_equal_data_have_equal_fingerprints(data):
    copied = changed(data, values=data.modalities["x"].values.copy())
    assert fingerprint(copied, "data") == fingerprint(data, "data")


def test_it_names_arrays_with_their_shapes(data):
    told = fingerprint(data, "data")
    assert sorted(told) == ["data.modalities.x.mask", "data.modalities.x.values"]
    assert told["data.modalities.x.values"].startswith("float32[6, 5, 3] ")


@pytest.mark.parametrize("place", [(0, 0, 0), (5, 4, 2), (3, 1, 1)])
def test_every_number_counts(data, place):
    x = data.modalities["x"].values.copy()
    x[place] = np.nextafter(x[place], np.float32(9))
    assert fingerprint(changed(data, values=x), "data") != fingerprint(data, "data")


def test_masks_scales_and_validation_count(data):
    flipped = data.modalities["x"].mask.copy()
    flipped[0, 0] = False
    assert fingerprint(changed(data, mask=flipped), "data") != fingerprint(data, "data")
    assert fingerprint(changed(data, scale=0.5), "data")["data.modalities.x.scale"] == "0.5"
    assert data_identity(data, data) == fingerprint(data, "data") | fingerprint(data, "validation")
    assert data_identity(data, None) == fingerprint(data, "data")


def test_the_order_of_an_array_in_memory_does_not_count(data):
    other = np.asfortranarray(data.modalities["x"].values)
    assert fingerprint(changed(data, values=other), "data") == fingerprint(data, "data")


def test_of_large_arrays_blocks_count(data, monkeypatch):
    """The first and last row may be missed; a change of every row may not."""
    monkeypatch.setattr("rpgssm.training.fingerprint.WHOLE", 100)
    monkeypatch.setattr("rpgssm.training.fingerprint.BLOCK", 60)
    x = data.modalities["x"].values
    assert fingerprint(changed(data, values=x + 1), "data") != fingerprint(data, "data")
    assert fingerprint(changed(data, values=x.copy()), "data") == fingerprint(data, "data")
