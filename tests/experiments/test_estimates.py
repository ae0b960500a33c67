"""Estimates of time: from results where there are some."""

import pytest

from rpgssm.experiments.estimates import Clock, duration
from rpgssm.experiments.plans import plan
from rpgssm.experiments.store import Result, read_all

from .fakes import accuracy_runs, write_result


def test_every_run_of_both_protocols_has_an_estimate():
    clock = Clock([])
    for protocol in ("compact", "paper"):
        assert all(clock.seconds(run) > 0 for run in plan("comparison", protocol=protocol))


def test_compact_is_a_night_once_the_rpgssm_has_its_recipe_results():
    accuracy = [Result(run, {"status": "diverged"}) for run in plan("accuracy")]
    clock = Clock(accuracy)
    hours = sum(clock.seconds(run) for run in plan("comparison", protocol="compact")) / 3600
    assert 5 < hours < 12


def test_measured_rates_replace_the_table(tmp_path):
    first, second = accuracy_runs("pendulum", [0, 1])
    write_result(tmp_path, first, {"mean": 0.9}, seconds=50.0)  # 100 steps: two a second
    clock = Clock(read_all(tmp_path))
    assert clock.seconds(second) == pytest.approx(40 + second.settings["max_steps"] / 2)  # 40 s for all else
    assert clock.seconds(first) == 0


def test_fewer_and_shorter_pieces_take_less():
    (run,) = plan("comparison", tasks=["pendulum"], methods=["svae"], seeds=[0])
    clock = Clock([])
    whole = run.with_settings(batch_size=32, window=None)
    assert clock.seconds(run) - 40 == pytest.approx((clock.seconds(whole) - 40) / 8)


@pytest.mark.parametrize(("seconds", "text"), [(40, "40 s"), (600, "10 min"), (9000, "2.5 h")])
def test_durations(seconds, text):
    assert duration(seconds) == text
