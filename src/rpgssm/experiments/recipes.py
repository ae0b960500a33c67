"""The settings of the RP-GSSM for each family of tasks, as plain data. Chosen on validation data only.

The numbers are explained in docs/recipes.md. A change here makes other runs: results of other settings stay where they
are, and no longer count for the tables.
"""

from typing import Any

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

NONLINEAR: dict[str, Any] = {
    "latent_dim": 64,
    "encoder": "cnn",
    "precision": "cholesky",
    "marginal": "empirical",
    "initial_scale": 0.98,
    "initial_precision": 0.1,
    "learning_rate": 3e-3,
    "prior_learning_rate": 1e-3,
    "schedule": "cosine",
    "max_steps": 200,
}

SMOOTH: dict[str, Any] = {
    "initial_transition": "smooth",
    "initial_scale": 0.998,
    "initial_precision": 1.0,
    "prior_learning_rate": 1e-3,
}

RECIPES: dict[str, dict[str, Any]] = {
    "linear": {
        "encoder": "linear",
        "precision": "cholesky",
        "initial_precision": 1.0,
        "learning_rate": 3e-2,
        "max_steps": 2000,
    },
    "vector": NONLINEAR | {"encoder": "mlp"},
    # all latents for what smoothing makes of a few functions of what the network sees
    "pendulum": NONLINEAR
    | {
        "widen": 256,
        "widen_steps": 300,
        "widen_settings": {
            "marginal": "gaussian",
            "learning_rate": 1e-2,
            "prior_learning_rate": 1e-4,
        },
    },
    # short pieces, longer than A remembers, make steps cheap; what they fold up the wide layer spreads out
    "double-pendulum": NONLINEAR
    | {
        "initial_scale": 0.9,
        "initial_precision": 1.0,
        "prior_learning_rate": 1e-5,
        "max_steps": 1000,
        "window": 25,
        "widen": 256,
        "widen_steps": 100,
    },
    # the first chain is fast, to find out what there is to see; the second one smooth, to tell how it moves
    "tracking": NONLINEAR
    | {
        "encoder": "keypoints",
        "prior_learning_rate": 3e-3,
        "max_steps": 400,
        "widen": 0,
        "widen_steps": 300,
        "widen_settings": SMOOTH,
    },
}

# a film is as predictable as the animal before it: compare with frames that look alike
ALIKE: dict[str, Any] = {"batches": "alike", "mirror": True, "window": 20}
BEFORE_FILMS: dict[str, dict[str, Any]] = {
    "davis-tracking": ALIKE
    | {
        "max_steps": 3000,
        "widen_settings": SMOOTH | {"batches": "random", "window": None},
    },
}

# an arm is sooner found without a background; cheap short pieces to find it before one
BEFORE_PHOTOGRAPHS: dict[str, dict[str, Any]] = {
    "cifar10-pendulum": {
        "prior_learning_rate": 1e-5,
        "max_steps": 1600,
        "window": 25,
        "widen_settings": RECIPES["pendulum"]["widen_settings"] | {"window": None},
    },
}


def recipe(task: str) -> dict[str, Any]:
    """The settings for a task."""
    settings = RECIPES[FAMILIES[task]] | BEFORE_PHOTOGRAPHS.get(task, {}) | BEFORE_FILMS.get(task, {})
    if task in TRUE_DIMENSIONS:
        settings = {"latent_dim": TRUE_DIMENSIONS[task], **settings}
    return settings
