"""A whole comparison of made-up numbers, to draw a report from. Nothing in it is measured."""

import base64
import random

import numpy as np

from rpgssm_study.methods import METHODS
from rpgssm_study.plans import plan

from .fakes import write_result

TARGETS = {
    "linear": ["z"],
    "pendulum": ["sin_angle", "velocity"],
    "double-pendulum": ["sin_first", "sin_second_relative", "sin_second_absolute"],
    "tracking": ["position", "velocity", "head_direction", "head_angle"],
}
LEVEL = {"rpgssm": 0.93, "svae": 0.75, "kvae": 0.6, "cpc": 0.7, "lgssm": 0.5, "rkn": 0.65, "dcl": 0.55}


def family(task):
    if task.startswith("linear"):
        return "linear"
    if "tracking" in task:
        return "tracking"
    return "double-pendulum" if "double" in task else "pendulum"


def level(task, method):
    base = LEVEL.get(method, 0.72)
    distracted = task.startswith(("cifar10", "davis"))
    return base * (0.4 if distracted and METHODS[method].kind == "generative" else 0.97 if distracted else 1.0)


def compare(results, **options):
    """Write results for the runs of the compact protocol, or some of them."""
    for run in plan("comparison", **options):
        rng = random.Random(run.identity)
        centre = level(run.task, run.method)
        scores = {t: centre * (1 - 0.12 * i) + rng.gauss(0, 0.02) for i, t in enumerate(TARGETS[family(run.task)])}
        scores["mean"] = sum(scores.values()) / len(scores)
        kernel = {name: min(x + 0.05, 0.99) for name, x in scores.items()}
        ceiling = {"z": 0.965, "mean": 0.96 + rng.gauss(0, 0.004)} if family(run.task) == "linear" else None
        more = {"scores": {}}
        if run.method != "cpc":
            curve = [scores["mean"] * (1 - h / 60) for h in range(50)]
            more["scores"]["forecast"] = {"context": 50, "r_squared": {"mean": curve}, "coverage": {}}
        if run.task.startswith(("cifar10", "davis")):
            spread = {name: 1 - centre for name in scores if name != "mean"}
            more["scores"]["robustness"] = {"latents": 1 - centre, "targets": spread, "variants": 5}
        more["examples"] = examples(run, rng)
        slow = 8 if METHODS[run.method].kind == "generative" else 2
        size = {"linear": 0.3, "pendulum": 5, "double-pendulum": 12, "tracking": 20}[family(run.task)]
        seconds = slow * size * 10 * rng.uniform(0.9, 1.2)
        when = [seconds * i / 20 for i in range(1, 21)]
        learned = [scores["mean"] * (1 - 0.7 * (1 - i / 20) ** 2) for i in range(1, 21)]
        more["training"] = {"validation_r2": {"step": list(range(5, 101, 5)), "seconds": when, "mean": learned}}
        write_result(results, run, scores, kernel=kernel, ceiling=ceiling, seconds=seconds, **more)


def examples(run, rng):
    if run.task == "cifar10-pendulum":
        out = {"forecast": film(run, rng)} if run.method != "cpc" else {}
        if METHODS[run.method].decoder == "own" or run.decoder_steps:
            out["reconstructions"] = reconstruction(run)
        return out
    if run.task == "davis-tracking":
        t = np.linspace(0, 3, 100)
        truth = np.stack([0.5 + 0.35 * np.cos(t), 0.5 + 0.3 * np.sin(2 * t)], 1)
        spread = 1 - level(run.task, run.method)
        noise = np.random.default_rng(rng.randrange(2**32)).standard_normal((5, 1, 2))
        return {"paths": {"truth": truth.tolist(), "inferred": (truth + 0.1 * spread * noise).tolist()}}
    return {}


def film(run, rng):
    t = np.arange(100)
    truth = {"sin_angle": np.sin(t / 9), "velocity": 4 * np.cos(t / 9)}
    good = level(run.task, run.method)
    growing = np.where(t < 50, 0.1, 0.1 + 0.01 * (t - 50))
    return {
        "context": 50,
        "dt": 0.01,
        "truth": {name: y.reshape(1, 100, 1).tolist() for name, y in truth.items()},
        "mean": {name: (good * y + rng.gauss(0, 0.05)).reshape(1, 100, 1).tolist() for name, y in truth.items()},
        "deviation": {name: (np.ptp(y) / 2 * growing).reshape(1, 100, 1).tolist() for name, y in truth.items()},
    }


def reconstruction(run):
    moments = list(range(0, 100, 14))
    background = np.random.default_rng(0).random((len(moments), 24, 24, 1))
    arm = np.zeros_like(background)
    for frame, t in zip(arm, moments, strict=True):
        for r in range(11):
            frame[round(12 + r * np.cos(t / 9)), round(12 + r * np.sin(t / 9))] = 1
    flat = 0.4 if run.method == "rpgssm" else 0.4 + 0.3 * (background - 0.5)
    kind = METHODS[run.method].decoder
    return {
        "decoder": kind,
        "moments": moments,
        "seen": stored(np.maximum(background, arm)),
        "decoded": stored(np.maximum(flat, arm * level(run.task, run.method))),
    }


def stored(frames):
    data = (255 * frames).astype(np.uint8)
    return {"shape": list(data.shape), "data": base64.b64encode(data.tobytes()).decode()}
