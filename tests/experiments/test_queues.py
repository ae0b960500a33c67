"""Handing out runs: nothing twice, nothing lost."""

import json
import multiprocessing
import os
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rpgssm.experiments import store
from rpgssm.experiments.claims import Claims, lives, machine_mark
from rpgssm.experiments.plans import plan
from rpgssm.experiments.queues import open_queue
from rpgssm.experiments.workers import work_through

from .fakes import write_result

SOURCE = str(Path(__file__).resolve().parent.parent.parent / "src")
SCORES = {"z": 0.9, "mean": 0.9}
RUNS = plan("accuracy", tasks=["linear-small"], seeds=[0, 1, 2])


@pytest.fixture(params=["list", "sqlite", "journal"])
def make_queue(request, tmp_path):
    if request.param != "list":
        pytest.importorskip("optuna")
    kind = {
        "list": "list",
        "sqlite": f"sqlite:///{tmp_path / 'queue.db'}",
        "journal": str(tmp_path / "queue.log"),
    }[request.param]

    def make(runs=RUNS, **options):
        claims = Claims(tmp_path / "claims.db", **options)
        return open_queue(kind, runs, tmp_path / "results", tmp_path, claims=claims)

    make.kind = kind
    return make


def finish(taken, results):
    write_result(results, taken.run, SCORES)
    taken.finish(store.read(results, taken.run))


def test_two_workers_share_the_runs(make_queue, tmp_path):
    first, second = make_queue(), make_queue()
    taken = [first.take(), second.take(), first.take()]
    assert {t.run for t in taken} == set(RUNS)
    assert second.take() is None
    for t in taken:
        finish(t, tmp_path / "results")
    assert first.take() is None
    assert make_queue().take() is None


def test_a_finished_run_is_not_handed_out(make_queue, tmp_path):
    write_result(tmp_path / "results", RUNS[0], SCORES)
    queue = make_queue()
    assert {queue.take().run, queue.take().run} == set(RUNS[1:])
    assert queue.take() is None


def test_a_result_that_was_removed_is_made_again(make_queue, tmp_path):
    queue = make_queue(RUNS[:1])
    finish(queue.take(), tmp_path / "results")
    (tmp_path / "results" / RUNS[0].path).unlink()
    assert make_queue(RUNS[:1]).take().run == RUNS[0]


def test_what_is_given_back_is_taken_by_the_next(make_queue):
    queue = make_queue(RUNS[:1])
    queue.take().give_back()
    assert make_queue(RUNS[:1]).take().run == RUNS[0]


def test_what_failed_is_not_tried_again_by_the_same_worker(make_queue):
    queue = make_queue(RUNS[:1])
    queue.take().give_back("no such file")
    assert queue.take() is None
    assert make_queue(RUNS[:1]).take().run == RUNS[0]


def test_the_run_of_a_worker_not_heard_of_is_handed_out_again(make_queue, tmp_path):
    """If it was only slow, it comes to its end all the same, and says nothing more."""
    silent = make_queue(RUNS[:1], beat=1.5, stale=0.3).take()
    assert silent is not None
    other = make_queue(RUNS[:1], beat=1000.0, stale=0.3)
    time.sleep(0.5)
    again = other.take()
    assert again.run == RUNS[0]
    time.sleep(1.5)
    finish(again, tmp_path / "results")
    finish(silent, tmp_path / "results")
    assert make_queue(RUNS[:1]).take() is None


HOLDER = """
import json, sys, time
from pathlib import Path
from rpgssm.experiments.queues import open_queue
from rpgssm.experiments.runs import Run

kind, folder, run = sys.argv[1], Path(sys.argv[2]), Run.from_json(json.loads(sys.argv[3]))
taken = open_queue(kind, [run], folder / "results", folder).take()
print(taken.run.identity, flush=True)
time.sleep(600)
"""


def test_the_run_of_a_killed_worker_is_handed_out_at_once(make_queue, tmp_path):
    command = [sys.executable, "-c", HOLDER, make_queue.kind, str(tmp_path), json.dumps(RUNS[0].to_json())]
    worker = subprocess.Popen(command, env=os.environ | {"PYTHONPATH": SOURCE}, stdout=subprocess.PIPE, text=True)
    with worker:
        try:
            assert worker.stdout.readline().strip() == RUNS[0].identity
            assert make_queue(RUNS[:1]).take() is None
        finally:
            worker.kill()
    assert make_queue(RUNS[:1]).take().run == RUNS[0]


def test_signs_of_life_keep_a_claim(make_queue):
    queue = make_queue(RUNS[:1], beat=0.05, stale=1.0)
    taken = queue.take()
    time.sleep(1.5)
    assert make_queue(RUNS[:1], beat=0.05, stale=1.0).take() is None
    taken.give_back()


def test_a_dead_process_holds_nothing(tmp_path):
    process = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(0,))
    process.start()
    process.join()
    claims = Claims(tmp_path / "claims.db")
    assert claims.take("x") is not None
    assert claims.take("x") is None
    assert claims.held() == {"x"}
    with sqlite3.connect(tmp_path / "claims.db") as c:
        c.execute("UPDATE claims SET process = ?", (process.pid,))
    c.close()
    assert claims.held() == set()
    assert claims.take("x") is not None


def test_a_process_on_another_machine_is_believed_until_it_is_silent():
    assert lives(machine_mark(), os.getpid(), time.time())
    assert lives("elsewhere", 1, time.time() - 10, stale=60.0)
    assert not lives("elsewhere", 1, time.time() - 61, stale=60.0)


def test_a_worker_goes_on_after_a_failure_and_tells(make_queue, tmp_path):
    results, told = tmp_path / "results", []

    def do(run):
        if run == RUNS[1]:
            raise FileNotFoundError("CIFAR-10 is not here")
        write_result(results, run, SCORES)
        return store.read(results, run)

    errors = work_through(make_queue(), RUNS, results, do, tell=told.append)
    assert errors == {RUNS[1].identity: "FileNotFoundError: CIFAR-10 is not here"}
    assert store.missing(results, RUNS) == [RUNS[1]]
    assert sum("0.900" in line for line in told) == 2


def test_an_interrupted_worker_gives_its_run_back(make_queue, tmp_path):
    def do(run):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        work_through(make_queue(RUNS[:1]), RUNS[:1], tmp_path / "results", do, tell=lambda text: None)
    assert make_queue(RUNS[:1]).take().run == RUNS[0]


def test_a_queue_in_a_database_needs_optuna(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(ImportError, match=r"rpgssm\[sweep\]"):
        open_queue("sqlite:///x.db", RUNS, tmp_path, tmp_path)
    assert open_queue("auto", RUNS, tmp_path, tmp_path).take().run == RUNS[0]
