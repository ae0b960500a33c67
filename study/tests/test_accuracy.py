"""The table of accuracies: medians, verdicts, and the copy in study/README.md."""

from pathlib import Path

import pytest

from rpgssm_study import accuracy
from rpgssm_study.report.collection import Collection
from rpgssm_study.report.tables import summary

from .fakes import accuracy_runs, write_result

STUDY = Path(__file__).resolve().parent.parent


def row(results, task, target):
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in accuracy.table(results).splitlines()]
    start = next(i for i, cells in enumerate(lines) if cells[0] == task)
    return next(dict(zip(lines[0], cells, strict=True)) for cells in lines[start:] if cells[1] == target)


def test_readme_shows_the_stored_results():
    text = (STUDY / "README.md").read_text(encoding="utf-8")
    assert accuracy.insert(text, accuracy.table(STUDY / "results")) == text
    compared = summary(Collection.read(STUDY / "results", "compact"))
    assert accuracy.insert(text, compared, "comparison") == text


def test_medians_and_verdicts(tmp_path):
    for run, sine, velocity in zip(accuracy_runs("pendulum"), (0.99, 0.97, 0.985), (0.9, 0.95, 0.92), strict=True):
        scores = {"sin_angle": sine, "velocity": velocity, "mean": 0.9}
        write_result(tmp_path, run, scores, kernel={"sin_angle": 0.96, "velocity": 0.94}, seconds=600.0)
    sine, velocity = (row(tmp_path, "pendulum", name) for name in ("sin_angle", "velocity"))
    assert sine["R²"] == "0.985 ✓ (0.970 to 0.990)"
    assert velocity["R²"] == "0.920 ✗ (0.900 to 0.950)"
    assert (sine["kernel R²"], velocity["kernel R²"]) == ("0.960 ✓", "0.940 ✗")
    assert (sine["seeds"], sine["minutes"], sine["allowed"]) == ("3", "10.0 ✓", "< 15")


def test_linear_tasks_are_measured_against_the_ceiling_of_their_own_data(tmp_path):
    for run, score, ceiling in zip(accuracy_runs("linear-small"), (0.90, 0.95, 0.80), (0.904, 0.953, 0.9), strict=True):
        write_result(tmp_path, run, {"z": score, "mean": score}, ceiling={"z": ceiling, "mean": ceiling}, seconds=90.0)
    found = row(tmp_path, "linear-small", "z")
    assert found["R²"] == "0.900 ✓ (0.800 to 0.950)"  # the median gap is 0.004
    assert found["minutes"] == "1.5 ✗"


def test_other_settings_and_failures(tmp_path):
    runs = accuracy_runs("pendulum")
    scores = {"sin_angle": 0.99, "velocity": 0.99, "mean": 0.99}
    write_result(tmp_path, runs[0].with_settings(latent_dim=3), scores)
    assert row(tmp_path, "pendulum", "sin_angle")["R²"] == "not run yet"
    write_result(tmp_path, runs[1], scores, status="diverged")
    assert row(tmp_path, "pendulum", "sin_angle")["R²"] == "diverged"
    write_result(tmp_path, runs[2], scores)
    assert row(tmp_path, "pendulum", "sin_angle")["seeds"] == "1 (1 diverged)"


def test_a_text_without_markers_is_refused():
    with pytest.raises(ValueError, match="no place for the table"):
        accuracy.insert("nothing here", "| a |")
