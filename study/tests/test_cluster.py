"""Runs on the workers of a cluster: nothing twice, nothing lost, in the order of the plan. Processes are real."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest
from dask import config
from distributed import LocalCluster

from rpgssm_study import cluster, store
from rpgssm_study.cluster import run_all
from rpgssm_study.plans import plan
from rpgssm_study.workers import locked

# the SVAE has two settings, CPC one; the first seed of the SVAE chooses which is repeated
RUNS = plan("comparison", tasks=["linear-small"], methods=["svae", "cpc"])
FIRST = [run for run in RUNS if run.method == "svae" and run.seed == 0]
WORSE, BETTER = FIRST
CPC = [run for run in RUNS if run.method == "cpc"]
CHOSEN = {run for run in RUNS if run.digest == BETTER.digest}

needs_cores = pytest.mark.skipif(
    not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) < 2, reason="two cores are needed"
)


def pretended(folder, *, killed="", deaths=1, failing="", pause=0.01):
    """Something that does runs: ten "steps" with a checkpoint each. From the fifth on it may kill its worker.

    It goes to workers by value, so it imports what it needs and uses nothing of this file.
    """
    better = BETTER.digest

    def do(run):
        import json
        import os
        import signal
        import time

        from rpgssm_study import store

        if (done := store.read(folder / "results", run)) is not None:
            return done
        checkpoint = folder / "work" / run.identity / "checkpoint"
        begun = int(checkpoint.read_text()) if checkpoint.exists() else 0
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        with (folder / "log").open("a") as log:
            log.write(json.dumps([run.identity, os.getpid(), cores, begun]) + "\n")
        end = time.monotonic() + 20
        while killed not in ("", run.identity) and (folder / "deaths").exists() and time.monotonic() < end:
            if len({json.loads(line)[1] for line in (folder / "log").read_text().splitlines()}) > 2:
                break  # there is a new worker in place of the dead one
            time.sleep(0.05)
        if run.identity == failing:
            raise FileNotFoundError("CIFAR-10 is not here")
        for step in range(begun + 1, 11):
            time.sleep(pause)
            checkpoint.write_text(str(step))
            died = folder / "deaths"
            if run.identity == killed and step >= 5 and len(died.read_text() if died.exists() else "") < deaths:
                with died.open("a") as file:
                    file.write("x")
                os.kill(os.getpid(), signal.SIGKILL)
        score = {"mean": 0.9 if run.digest == better else 0.1}
        done = {"status": "finished", "validation": score, "scores": {"linear": score}, "training": {"seconds": 1}}
        store.write(folder / "results", run, done)
        return store.read(folder / "results", run)

    return do


def begun(folder):
    """The runs that were begun, in this order: name, process, cores, and the step they began after."""
    names = {run.identity: run for run in RUNS}
    lines = [json.loads(line) for line in (folder / "log").read_text().splitlines()]
    return [(names[name], process, tuple(cores), step) for name, process, cores, step in lines]


def do_all(folder, runs=RUNS, *, do=None, **options):
    return run_all(runs, folder / "results", folder / "work", do or pretended(folder), **options)


@pytest.fixture(autouse=True)
def impatient(monkeypatch):
    monkeypatch.setattr(cluster, "POLL", 0.2)
    monkeypatch.setattr(cluster, "SYNC", 0.0)


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A plan, done by two processes. One is killed in its first run, and one run fails."""
    folder = tmp_path_factory.mktemp("finished")
    do = pretended(folder, killed=WORSE.identity, failing=CPC[1].identity)
    errors = do_all(folder, do=do, workers=2)
    return SimpleNamespace(folder=folder, errors=errors, begun=begun(folder))


def test_all_but_the_run_that_fails_is_done(finished):
    assert finished.errors == {CPC[1].identity: "FileNotFoundError: CIFAR-10 is not here"}
    assert set(RUNS) - set(store.missing(finished.folder / "results", RUNS)) == {WORSE, *CHOSEN, CPC[0], CPC[2]}


def test_the_run_of_a_killed_worker_is_resumed_by_another(finished):
    (_, killed, _, at_first), (_, other, _, then) = [line for line in finished.begun if line[0] == WORSE]
    assert killed != other
    assert (at_first, then) == (0, 5)


def test_no_other_run_is_done_twice(finished):
    counts = Counter(line[0] for line in finished.begun)
    assert counts == {run: 1 + (run == WORSE) for run in {WORSE, *CHOSEN, *CPC}}


def test_repetitions_wait_for_the_choice(finished):
    order = [line[0] for line in finished.begun]
    last_try = max(i for i, run in enumerate(order) if run in FIRST)
    repeated = [i for i, run in enumerate(order) if run.method == "svae" and run.seed > 0]
    assert min(repeated) > last_try
    assert {order[i].digest for i in repeated} == {BETTER.digest}


@needs_cores
def test_each_worker_has_cores_of_its_own(finished):
    cores = {process: set(cores) for _, process, cores, _ in finished.begun}
    assert len(cores) == 3  # two and a replacement
    distinct = {tuple(sorted(own)) for own in cores.values()}
    assert len(distinct) == 2
    assert not set.intersection(*map(set, distinct))
    assert set.union(*map(set, distinct)) == os.sched_getaffinity(0)


def test_what_is_done_is_not_done_again(finished):
    assert do_all(finished.folder, sorted(CHOSEN, key=RUNS.index), workers=2) == {}
    assert begun(finished.folder) == finished.begun


@pytest.mark.slow
def test_a_run_that_kills_its_workers_is_given_up(tmp_path):
    do = pretended(tmp_path, killed=CPC[0].identity, deaths=100)
    errors = do_all(tmp_path, CPC, do=do, workers=2)
    assert list(errors) == [CPC[0].identity]
    assert errors[CPC[0].identity].startswith("KilledWorker: ")
    assert store.missing(tmp_path / "results", CPC) == CPC[:1]
    assert len((tmp_path / "deaths").read_text()) == 4


def test_one_worker_is_this_process(tmp_path, capsys):
    assert do_all(tmp_path, do=pretended(tmp_path, failing=CPC[1].identity)) != {}
    lines = begun(tmp_path)
    assert {process for _, process, _, _ in lines} == {os.getpid()}
    assert [line[0] for line in lines] == [run for run in RUNS if run in {WORSE, *CHOSEN, *CPC}]
    out = capsys.readouterr().out
    assert f"{CPC[1].identity} failed: FileNotFoundError: CIFAR-10 is not here\n" in out
    assert f"] {CPC[2].identity}: R² mean 0.100; trained in 1 s\n" in out


def test_a_defect_keeps_its_traceback(tmp_path, capsys):
    def do(run):
        raise TypeError("a defect")

    assert do_all(tmp_path, CPC[:1], do=do) == {CPC[0].identity: "TypeError: a defect"}
    assert "Traceback" in capsys.readouterr().err


@pytest.fixture(scope="module")
def scheduler():
    """The address of a scheduler with two workers, which are threads here."""
    options = {"protocol": "tcp://", "dashboard_address": "127.0.0.1:0", "memory_limit": 0}
    with LocalCluster(n_workers=2, threads_per_worker=1, processes=False, **options) as started:
        yield started.scheduler_address


def test_commands_with_the_same_plan_share_the_runs(tmp_path, scheduler):
    errors = []
    commands = [threading.Thread(target=lambda: errors.append(do_all(tmp_path, scheduler=scheduler))) for _ in range(2)]
    for command in commands:
        command.start()
    for command in commands:
        command.join()
    assert errors == [{}, {}]
    assert Counter(line[0] for line in begun(tmp_path)) == dict.fromkeys({WORSE, *CHOSEN, *CPC}, 1)


def test_a_run_that_failed_can_be_tried_again(tmp_path, scheduler):
    failing = pretended(tmp_path, failing=CPC[0].identity)
    assert list(do_all(tmp_path, CPC[:1], do=failing, scheduler=scheduler)) == [CPC[0].identity]
    assert do_all(tmp_path, CPC[:1], scheduler=scheduler) == {}
    assert len(begun(tmp_path)) == 2


def test_a_result_that_was_removed_is_made_again(tmp_path, scheduler):
    for _ in range(2):
        assert do_all(tmp_path, CPC[:1], scheduler=scheduler) == {}
        (tmp_path / "results" / CPC[0].path).unlink()
    assert len(begun(tmp_path)) == 2


def test_a_run_in_hand_when_its_command_ended_is_not_begun_again(tmp_path, scheduler, monkeypatch):
    def interrupted(futures):
        while not (tmp_path / "log").exists():
            time.sleep(0.01)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(cluster, "_ended", interrupted)
        with pytest.raises(KeyboardInterrupt):
            do_all(tmp_path, CPC[:1], do=pretended(tmp_path, pause=0.1), scheduler=scheduler)
    assert store.missing(tmp_path / "results", CPC[:1]) == CPC[:1]
    assert do_all(tmp_path, CPC[:1], scheduler=scheduler) == {}
    assert len(begun(tmp_path)) == 1


def test_workers_must_see_the_folder_of_results(tmp_path, scheduler):
    elsewhere = tmp_path / "elsewhere"
    (elsewhere / "work" / CPC[0].identity).mkdir(parents=True)
    errors = do_all(tmp_path, CPC[:1], do=pretended(elsewhere), scheduler=scheduler)
    assert "all workers must see this folder" in errors[CPC[0].identity]


def test_an_address_without_a_scheduler(tmp_path):
    with (
        config.set({"distributed.comm.timeouts.connect": "0.1s"}),
        pytest.raises(ValueError, match=r"no scheduler answers at tcp://127\.0\.0\.1:1"),
    ):
        do_all(tmp_path, scheduler="tcp://127.0.0.1:1")


HOLDER = "import fcntl, sys, time; f = open(sys.argv[1], 'w'); fcntl.flock(f, 2); print('held', flush=True); input()"


@pytest.mark.skipif(sys.platform == "win32", reason="there is no such lock")
def test_a_folder_is_held_by_one_process_until_that_dies(tmp_path, capsys):
    command = [sys.executable, "-c", HOLDER, str(tmp_path / "lock")]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout.readline() == "held\n"
        killer = threading.Timer(0.3, holder.kill)
        killer.start()
        with locked(tmp_path):
            assert holder.wait(5) == -signal.SIGKILL
    assert "waiting for it" in capsys.readouterr().out
    with locked(tmp_path):
        pass
    assert capsys.readouterr().out == ""
