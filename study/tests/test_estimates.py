"""Estimates of time: from results where there are some."""

import dataclasses

import pytest

from rpgssm_study.estimates import OVERHEAD, SECONDS, Clock, duration
from rpgssm_study.plans import plan
from rpgssm_study.repeats import needed
from rpgssm_study.store import Result, read_all

from .fakes import accuracy_runs, write_result

ELSE = OVERHEAD["pendulum"]


def test_every_run_of_both_protocols_has_an_estimate():
    clock = Clock([])
    for protocol in ("compact", "paper"):
        assert all(clock.seconds(run) > 0 for run in plan("comparison", protocol=protocol))


def test_compact_is_a_night_once_the_rpgssm_has_its_recipe_results(tmp_path):
    accuracy = [Result(run, {"status": "diverged"}) for run in plan("accuracy")]
    clock = Clock(accuracy)
    runs = needed(tmp_path, plan("comparison", protocol="compact"))
    hours = sum(clock.seconds(run) for run in runs) / 3600
    assert 5 < hours / 2 < 12  # two workers


def test_measured_rates_replace_the_table(tmp_path):
    first, second = accuracy_runs("pendulum", [0, 1])
    write_result(tmp_path, first, {"mean": 0.9}, seconds=50.0)  # 100 steps: two a second
    clock = Clock(read_all(tmp_path))
    assert clock.seconds(second) == pytest.approx(ELSE + (200 + 300) / 2)  # with the second stage
    assert clock.seconds(first) == 0


def test_fewer_and_shorter_windows_take_less():
    (run,) = plan("comparison", tasks=["pendulum"], methods=["svae"], seeds=[0])
    clock = Clock([])
    whole = run.with_settings(batch_size=32, window=None)
    assert clock.seconds(run) - ELSE == pytest.approx((clock.seconds(whole) - ELSE) / 8)


def test_a_second_stage_takes_time_too():
    (run,) = plan("comparison", tasks=["tracking"], methods=["rpgssm"], seeds=[0])
    clock = Clock([])
    first, second = run.settings["stages"]
    once = dataclasses.replace(run, settings=first)
    assert second["max_steps"] == 300
    assert clock.seconds(run) - clock.seconds(once) == pytest.approx(300 * SECONDS["rpgssm"]["tracking"] / 1000)


def test_rates_of_one_protocol_serve_the_other(tmp_path):
    (measured, *_) = plan("comparison", tasks=["linear-small"], methods=["dcl"], seeds=[0])
    (asked, *_) = plan("comparison", protocol="paper", tasks=["linear-small"], methods=["dcl"], seeds=[0])
    write_result(tmp_path, measured, {"mean": 0.9}, seconds=1000.0)  # 100 steps: ten seconds each
    clock = Clock(read_all(tmp_path))
    assert clock.seconds(asked) > 10 * asked.settings["max_steps"]


@pytest.mark.parametrize(
    ("seconds", "text"), [(40, "40 s"), (600, "10 min"), (9000, "2.5 h"), (3 * 86400, "3 days"), (1e8, "3.2 years")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
