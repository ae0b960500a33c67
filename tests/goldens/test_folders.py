"""Models saved by rpgssm 0.1 still load, and say what they said."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from . import cases
from .capture import as_in_use

HERE = Path(__file__).parent
FOLDERS = HERE / "folders"
SAME_JAX = jax.__version__ == json.loads((HERE / "programs.json").read_text(encoding="utf-8"))["jax"]
CLOSE = 1e-5 if SAME_JAX else 1e-3  # another JAX rounds otherwise, which some of these models amplify to 3e-4


@pytest.fixture(autouse=True)
def quick_compilation(compile_quickly):
    with compile_quickly():
        yield


@pytest.mark.parametrize("name", cases.FOLDERS)
def test_a_saved_model_answers_as_before(name):
    with np.load(FOLDERS / name / "answers.npz") as stored, as_in_use():
        found = cases.answers(name, cases.load(name, FOLDERS / name / "model"))
        assert sorted(found) == sorted(stored)
        for question, before in stored.items():
            assert np.isfinite(before).all()
            now = found[question]
            assert now.shape == before.shape, question
            scale = max(1.0, float(np.abs(before).max()))
            np.testing.assert_allclose(now, before, rtol=0, atol=CLOSE * scale, err_msg=f"{name}: {question}")


def test_the_folders_are_those_stored():
    assert sorted(path.name for path in FOLDERS.iterdir()) == sorted(cases.FOLDERS)


def test_they_are_small():
    assert sum(path.stat().st_size for path in FOLDERS.rglob("*") if path.is_file()) < 1_500_000
