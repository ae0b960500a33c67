"""Later seeds repeat the settings that the first seed chose, and nothing else."""

import pytest

from rpgssm_study.plans import plan
from rpgssm_study.repeats import needed, ready

from .fakes import write_result

# two values of ν for the SVAE, one setting of CPC
RUNS = plan("comparison", tasks=["linear-small"], methods=["svae", "cpc"])
SVAE = [run for run in RUNS if run.method == "svae"]
FIRST = [run for run in SVAE if run.seed == 0]


def scored(r2):
    return {"z": r2, "mean": r2}


def test_the_plan_has_what_this_is_about():
    assert len(FIRST) == 2
    assert [run.seed for run in SVAE] == [0, 0, 1, 1, 2, 2]


def test_repetitions_wait_for_the_choice(tmp_path):
    others = [run for run in RUNS if run.method == "cpc"]
    assert set(ready(tmp_path, RUNS)) == {*FIRST, *others}
    write_result(tmp_path, FIRST[0], scored(0.5))
    assert set(ready(tmp_path, RUNS)) == {FIRST[1], *others}
    # one run stands for each repetition: 2 + 1 + 1 of the SVAE and 3 of CPC
    assert len(needed(tmp_path, RUNS)) == 7


@pytest.mark.parametrize("better", [0, 1])
def test_the_best_on_validation_sequences_is_repeated(tmp_path, better):
    write_result(tmp_path, FIRST[better], scored(0.5), validation=scored(0.9))
    write_result(tmp_path, FIRST[1 - better], scored(0.6), validation=scored(0.8))
    repeated = [run for run in SVAE[2:] if run.settings == FIRST[better].settings]
    assert ready(tmp_path, SVAE) == repeated
    assert needed(tmp_path, SVAE) == [*FIRST, *repeated]


def test_settings_that_diverged_are_not_repeated(tmp_path):
    write_result(tmp_path, FIRST[0], {}, status="diverged")
    write_result(tmp_path, FIRST[1], scored(-0.1))
    assert {run.digest for run in ready(tmp_path, SVAE)} == {FIRST[1].digest}


def test_without_the_first_seed_all_settings_are_tried(tmp_path):
    later = plan("comparison", tasks=["linear-small"], methods=["svae"], seeds=[1])
    assert ready(tmp_path, later) == later
    for run, r2 in zip(FIRST, (0.1, 0.2), strict=True):  # done before, by another command
        write_result(tmp_path, run, scored(r2))
    assert [run.settings for run in ready(tmp_path, later)] == [FIRST[1].settings]


def test_the_published_sweep_is_done_with_every_seed(tmp_path):
    runs = plan("comparison", protocol="paper", tasks=["linear-small"], methods=["rpgssm"])
    assert ready(tmp_path, runs) == needed(tmp_path, runs) == runs
