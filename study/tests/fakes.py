"""A stand-in for the estimators, quick and exact about what it was asked to do; and small stored results."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from rpgssm.training import History, Report, check_finite
from rpgssm_study.plans import plan
from rpgssm_study.tasks import load_task

SIZES = {"n_train": 8, "n_validation": 4, "n_test": 6, "cache": False}


def small_task(name, **options):
    """The task with few sequences."""
    return load_task(name, **{**options, **SIZES})


def report(step, seconds=0.0):
    """What a callback is told."""
    return Report(int(step), [{"step": float(step), "seconds": float(seconds)}], History(["step"]), None)


class Fake:
    """An "estimator" whose latents are the first numbers of a frame, times a matrix that depends on the seed."""

    fits: list = []  # noqa: RUF012
    error: Exception | None = None
    stopped = "max_steps"
    spoilt: np.ndarray | None = None

    max_steps = total_steps = 1000

    def __init__(self, **settings):
        self.settings = settings

    def get_params(self, deep=True):
        return dict(self.settings)

    def run_in(self, directory, verbose):
        self.settings |= {"checkpoint_dir": directory, "verbose": verbose}
        return self

    def fit(self, X, validation=None, resume=False, overwrite=False, callbacks=()):
        type(self).fits.append({"shape": X.shape, "validation": validation, "resume": resume, **self.settings})
        if self.error is not None and not overwrite:
            raise self.error
        steps = np.arange(10, 1001, 10)
        held_out = np.where(steps % 100 == 0, 1 / steps, np.nan)
        self.history_ = {
            "step": steps,
            "seconds": steps / 50,
            "loss": 1 / steps,
            "validation_loss": held_out,
            "steps_per_second": np.full(len(steps), 50.0),
        }
        self.n_steps_, self.best_step_, self.stopped_ = 1000, 900, self.stopped
        rng = np.random.default_rng(self.settings["random_state"])
        self.mixing = rng.standard_normal((X.shape[-1], self.settings["latent_dim"]))
        for step in steps:
            for callback in callbacks:
                callback(self, report(step, step / 50))
        return self

    def spoil(self, frame):
        """From now on the latents of sequences are not finite from this frame on."""
        self.spoilt = frame

    def transform(self, X):
        mean = X @ self.mixing
        if self.spoilt is not None:
            mean[np.maximum.accumulate((X == self.spoilt).all(-1), 1)] = np.nan
        check_finite(mean, "Fake")
        return mean

    def smooth(self, X):
        mean = self.transform(X)
        k = mean.shape[-1]
        return SimpleNamespace(mean=mean, cov=np.broadcast_to(np.eye(k), (*mean.shape, k)))

    filter = smooth

    def forecast(self, X, steps):
        last = self.smooth(X[:, -1:])
        return SimpleNamespace(mean=np.repeat(last.mean, steps, 1), cov=np.repeat(last.cov, steps, 1))

    def save(self, folder, overwrite=False):
        Path(folder).mkdir(parents=True, exist_ok=True)
        np.save(Path(folder) / "mixing.npy", self.mixing)

    @classmethod
    def load(cls, folder):
        loaded = cls()
        loaded.mixing = np.load(Path(folder) / "mixing.npy")
        return loaded


def write_result(results, run, linear, *, kernel=None, ceiling=None, seconds=60.0, status="finished", **more):
    """A result file with made-up numbers, written by hand rather than by the store."""
    content = {
        "format": 2,
        "run": run.to_json(),
        "status": status,
        "data": {"task": run.task, "seed": run.task_seed, "background": "none", "sources": {"generator": "a test"}},
        "parameters": run.settings,
        "version": "0.0.0",
        "packages": {},
        "machine": {"cores": 2, "system": "Linux", "architecture": "x86_64"},
    }
    if status == "finished":
        content |= {
            "scores": {
                "latent_dim": 3,
                "linear": linear,
                "kernel": kernel or linear,
                "filtering": linear,
                "forecast": None,
                "ceiling": ceiling,
            },
            "validation": linear,
            "training": {
                "seconds": seconds,
                "steps": 100,
                "best_step": 100,
                "stopped": "max_steps",
                "steps_per_second": 100 / seconds,
                "curve": {"step": [50, 100], "seconds": [seconds / 2, seconds], "loss": [2.0, 1.0]},
            },
            "examples": {},
            "evaluation_seconds": 1.0,
        }
        for name, value in more.items():
            content[name] = content.get(name, {}) | value
    else:
        content["error"] = "step 7: loss not finite"
    path = results / run.path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content), encoding="utf-8")
    return path


def accuracy_runs(task, seeds=(0, 1, 2)):
    return plan("accuracy", tasks=[task], seeds=list(seeds))
