"""Workers and commands that are killed in the middle of real trainings or of the command line's work."""

import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest

from rpgssm_study import cli
from rpgssm_study.cluster import run_all
from rpgssm_study.commands import experiments
from rpgssm_study.plans import plan

pytestmark = pytest.mark.slow
(RUN,) = plan("accuracy", tasks=["linear-small"], seeds=[0])


def until(condition, seconds=100.0):
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, f"still waiting after {seconds:g} s"
        time.sleep(0.02)


def training(folder):
    """Something that trains as in use, on few sequences, and writes down its process and the step it resumes from."""

    def do(run):
        import json
        import os

        from rpgssm.training.run import Run as TrainingRun
        from rpgssm_study import running
        from rpgssm_study.tasks import load_task

        restore = TrainingRun.restore

        def written(self, step, *arguments):
            with (folder / "log").open("a") as log:
                log.write(json.dumps([os.getpid(), int(step)]) + "\n")
            return restore(self, step, *arguments)

        sizes = {"n_train": 8, "n_validation": 4, "n_test": 6, "cache": False}
        running.load_task = lambda name, **options: load_task(name, **{**options, **sizes})
        TrainingRun.restore = written
        (folder / "pid").write_text(str(os.getpid()))
        return running.execute(run, folder / "results", folder / "work", checkpoint_every=100)

    return do


def test_a_training_whose_worker_is_killed_goes_on_in_another(tmp_path, monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")
    checkpoints = tmp_path / "work" / RUN.identity / "training" / "checkpoints"
    killed = []

    def kill():
        until(lambda: any(path.name.isdigit() for path in checkpoints.glob("*")))
        killed.append(int((tmp_path / "pid").read_text()))
        os.kill(killed[0], signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    assert run_all([RUN], tmp_path / "results", tmp_path / "work", training(tmp_path), workers=2) == {}
    killer.join()
    restored = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    process, step = restored[0]
    assert process != killed[0]
    assert 0 < step < RUN.settings["max_steps"]
    stored = json.loads((tmp_path / "results" / RUN.path).read_text())
    assert stored["status"] == "finished"
    assert stored["training"]["curve"]["step"][0] <= step
    assert not checkpoints.exists()


COMMAND = """
import sys, time
from pathlib import Path
from rpgssm_study import cli
from rpgssm_study.commands import experiments

def wait_for_ever(run, results, work, **options):
    import os, time
    (work / f"seed-{run.seed}").write_text(str(os.getpid()))
    time.sleep(600)

experiments.execute = wait_for_ever
folders = ["--results", sys.argv[1] + "/results", "--work", sys.argv[1]]
cli.main(["run", "accuracy", "--tasks", "linear-small", "--workers", "2", *folders])
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
@pytest.mark.parametrize(("number", "everywhere"), [("SIGINT", True), ("SIGTERM", False), ("SIGTERM", True)])
def test_an_interrupted_command_ends_its_workers(tmp_path, number, everywhere):
    """A terminal sends Ctrl-C to all processes, `kill` sends SIGTERM to one, and job schedulers to one or all."""

    def at_work():
        return [path.read_text() for path in tmp_path.glob("seed-*") if path.read_text()]

    command = [sys.executable, "-W", "error", "-c", COMMAND, str(tmp_path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            until(lambda: len(at_work()) == 2 or process.poll() is not None)
            (os.killpg if everywhere else os.kill)(process.pid, signal.Signals[number])
            out, _ = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert out.endswith("Interrupted: the same command goes on from here.\n")
    for worker in at_work():
        with pytest.raises(ProcessLookupError):
            os.kill(int(worker), 0)


def test_workers_that_somebody_started(tmp_path, monkeypatch, capsys):
    """Two commands for the terminal, as in the README, and one for the runs."""

    def pretended(run, results, work, **options):
        import os

        from rpgssm_study import store

        score = {"mean": 0.9}
        done = {"status": "finished", "validation": score, "scores": {"linear": score}, "training": {"seconds": 1}}
        store.write(results, run, {**done, "process": os.getpid()})
        return store.read(results, run)

    monkeypatch.setattr(experiments, "execute", pretended)
    monkeypatch.setattr(experiments.signal, "signal", lambda *_: None)
    monkeypatch.chdir(tmp_path)  # workers are elsewhere: they must be told whole paths
    file = tmp_path / "scheduler.json"
    start = [sys.executable, "-m", "dask"]
    options = ["--scheduler-file", str(file), "--no-dashboard"]
    scheduler = subprocess.Popen(
        [*start, "scheduler", "--host", "127.0.0.1", "--port", "0", "--dashboard-address", "127.0.0.1:0", *options],
        cwd=file.root,
    )
    with scheduler:
        try:
            until(file.exists)
            worker = subprocess.Popen([*start, "worker", "--nthreads", "1", *options], cwd=file.root)
            with worker:
                try:
                    address = json.loads(file.read_text())["address"]
                    asked = ["run", "accuracy", "--tasks", "linear-small", "--seeds", "0,1", "--scheduler", address]
                    cli.main([*asked, "--results", "results", "--work", "work"])
                finally:
                    worker.terminate()
        finally:
            scheduler.terminate()
    assert "2 of 2 runs are done" in capsys.readouterr().out
    found = [json.loads(path.read_text())["process"] for path in (tmp_path / "results").rglob("*.json")]
    assert len(found) == 2
    assert set(found).isdisjoint({os.getpid(), worker.pid, scheduler.pid})
