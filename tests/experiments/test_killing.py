"""A worker is killed in the middle of a real training; the next one goes on from its last checkpoint."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from rpgssm.experiments import running
from rpgssm.experiments.claims import Claims
from rpgssm.experiments.plans import plan
from rpgssm.experiments.queues import open_queue
from rpgssm.experiments.workers import work_through
from rpgssm.training.run import Run as TrainingRun

from .fakes import small_task

SOURCE = Path(__file__).resolve().parent.parent.parent / "src"
STEPS = 60_000  # far more than can be done before the kill
(RUN,) = plan("accuracy", tasks=["linear-small"], seeds=[0], overrides={"max_steps": STEPS, "schedule": "constant"})
WORKER = """
import json, sys
from pathlib import Path
from rpgssm.estimator.loading import estimator_class
from rpgssm.experiments import running
from rpgssm.experiments.queues import open_queue
from rpgssm.experiments.runs import Run
from rpgssm.experiments.workers import work_through
from rpgssm.tasks import load_task

sizes = dict(n_train=8, n_validation=4, n_test=6, cache=False)
running.load_task = lambda name, **options: load_task(name, **{**options, **sizes})
folder, run = Path(sys.argv[1]), Run.from_json(json.loads(sys.argv[2]))
do = lambda run: running.execute(run, folder / "results", folder / "work", estimator_class, checkpoint_every=100)
work_through(open_queue("list", [run], folder / "results", folder / "work"), [run], folder / "results", do)
"""


@pytest.mark.slow
def test_a_killed_run_goes_on(tmp_path, monkeypatch, compile_quickly):
    settings = {"JAX_PLATFORMS": "cpu", "JAX_ENABLE_X64": "1", "JAX_DISABLE_MOST_OPTIMIZATIONS": "1"}
    environment = os.environ | {"PYTHONPATH": str(SOURCE), **settings}
    command = [sys.executable, "-c", WORKER, str(tmp_path), json.dumps(RUN.to_json())]
    worker = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    checkpoints = tmp_path / "work" / RUN.identity / "training" / "checkpoints"
    try:
        end = time.monotonic() + 100
        while not any(path.name.isdigit() for path in checkpoints.glob("*")):
            assert worker.poll() is None, "the worker ended by itself"
            assert time.monotonic() < end, "no checkpoint in 100 s"
            time.sleep(0.05)
        assert Claims(tmp_path / "work" / "claims.db").held() == {RUN.identity}
    finally:
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    kept = max(int(path.name) for path in checkpoints.glob("*") if path.name.isdigit())
    assert not list((tmp_path / "results").rglob("*.json"))
    assert Claims(tmp_path / "work" / "claims.db").held() == set()

    restored, restore = [], TrainingRun.restore

    def spy(self, step, template, data):
        restored.append(step)
        return restore(self, step, template, data)

    def estimator(name):
        from rpgssm.estimator.loading import estimator_class

        def build(**settings):  # the rest of the steps is not the point
            return estimator_class(name)(**settings | {"max_steps": kept + 20})

        return build

    monkeypatch.setattr(TrainingRun, "restore", spy)
    monkeypatch.setattr(running, "load_task", small_task)
    results, work = tmp_path / "results", tmp_path / "work"
    queue = open_queue("list", [RUN], results, work)

    def do(run):
        return running.execute(run, results, work, estimator, checkpoint_every=100)

    monkeypatch.setattr(running.scoring, "scores", lambda *_: {"linear": {"mean": 0.5}})
    monkeypatch.setattr(running.scoring, "validation", lambda *_: {"mean": 0.5})
    with compile_quickly():
        assert work_through(queue, [RUN], results, do, tell=lambda text: None) == {}
    assert kept in restored
    training = json.loads((results / RUN.path).read_text())["training"]
    assert training["steps"] == kept + 20
    assert training["curve"]["step"][0] <= kept
    assert not checkpoints.exists()
