"""The settings of the RP-GSSM for each family of tasks. Chosen on validation data only.

A recipe holds settings of `rpgssm.RPGSSM`, or `{"stages": (first, second)}`: those of two that form a `rpgssm.Stack`.
The numbers are explained in study/NOTES.md. A change here makes other runs: results of other settings stay where they
are, and no longer count for the tables.
"""

from collections.abc import Callable
from typing import Any

import rpgssm  # cheap; it imports JAX when a class is first used, in the functions below

Settings = dict[str, Any]

FAMILIES: dict[str, str] = {
    "linear-small": "linear",
    "linear-medium": "linear",
    "linear-large": "linear",
    "pendulum-vector": "vector",
    "pendulum": "pendulum",
    "pendulum-64": "pendulum",
    "cifar10-pendulum": "pendulum",
    "double-pendulum": "double-pendulum",
    "cifar10-double-pendulum": "double-pendulum",
    "tracking": "tracking",
    "davis-tracking": "tracking",
}
TRUE_DIMENSIONS = {"linear-small": 3, "linear-medium": 5, "linear-large": 10}
BEFORE_FILMS = ("davis-tracking",)  # tasks whose background is a film


def recipe(task: str) -> Settings:
    """The settings for a task."""
    if task in TRUE_DIMENSIONS:
        return {"latent_dim": TRUE_DIMENSIONS[task]} | linear()
    return _RECIPES[task]()


def linear() -> Settings:
    return {
        "encoder": "linear",
        "precision": rpgssm.Cholesky(start=1.0),
        "learning_rate": 3e-2,
        "max_steps": 2000,
    }


def nonlinear() -> Settings:
    """Settings that the recipes of all other tasks start from."""
    return {
        "latent_dim": 64,
        "encoder": "cnn",
        "precision": rpgssm.Cholesky(start=0.1),
        "prior": rpgssm.Prior(scale=0.98),
        "marginal": rpgssm.EmpiricalMarginal(),
        "learning_rate": 3e-3,
        "optimizer": rpgssm.Adam(prior_rate=1e-3, schedule="cosine"),
        "max_steps": 200,
    }


def vector() -> Settings:
    return nonlinear() | {"encoder": "mlp"}


def pendulum() -> Settings:
    first = nonlinear()
    return {"stages": (first, first | gaussian_stage())}


def cifar10_pendulum() -> Settings:
    """A longer first stage: behind an image, the arm is found late. Short windows make its steps cheap."""
    first = nonlinear() | {"optimizer": rpgssm.Adam(prior_rate=1e-5), "max_steps": 1600, "window": 25}
    return {"stages": (first, first | gaussian_stage() | {"window": None})}


def gaussian_stage() -> Settings:
    """A second stage that uses all latents, for a few fixed functions of what the network sees."""
    return {
        "encoder": rpgssm.FixedFeatures(256),
        "marginal": rpgssm.GaussianMarginal(),
        "learning_rate": 1e-2,
        "optimizer": rpgssm.Adam(prior_rate=1e-4),
        "max_steps": 300,
    }


def double_pendulum() -> Settings:
    """Many cheap steps on short windows, which A does not outlast; a wide layer spreads out what they fold up."""
    first = nonlinear() | {
        "precision": rpgssm.Cholesky(start=1.0),
        "prior": rpgssm.Prior(scale=0.9),
        "optimizer": rpgssm.Adam(prior_rate=1e-5),
        "max_steps": 1000,
        "window": 25,
    }
    return {"stages": (first, first | {"encoder": rpgssm.WideLayer(256), "max_steps": 100})}


def tracking() -> Settings:
    """A fast chain first, to find what there is to see; then a smooth one, to tell how it moves."""
    first = keypoints()
    return {"stages": (first, first | smooth_stage())}


def davis_tracking() -> Settings:
    first = keypoints()
    second = first | smooth_stage() | {"window": None}
    return {"stages": (first | similar_windows() | {"max_steps": 3000}, second)}


def keypoints() -> Settings:
    return nonlinear() | {"encoder": "keypoints", "optimizer": rpgssm.Adam(prior_rate=3e-3), "max_steps": 400}


def smooth_stage() -> Settings:
    return {
        "encoder": "linear",
        "prior": rpgssm.Prior(start="smooth", scale=0.998),
        "precision": rpgssm.Cholesky(start=1.0),
        "optimizer": rpgssm.Adam(prior_rate=1e-3),
        "max_steps": 300,
    }


def similar_windows() -> Settings:
    """Batches for films behind the animal, which are as predictable as it is: frames are compared with similar ones."""
    return {"sampler": rpgssm.SimilarWindows(), "augment": rpgssm.RandomFlips(), "window": 20}


_RECIPES: dict[str, Callable[[], Settings]] = {
    "pendulum-vector": vector,
    "pendulum": pendulum,
    "pendulum-64": pendulum,
    "cifar10-pendulum": cifar10_pendulum,
    "double-pendulum": double_pendulum,
    "cifar10-double-pendulum": double_pendulum,
    "tracking": tracking,
    "davis-tracking": davis_tracking,
}
