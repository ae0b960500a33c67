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
    "latent_dim": 16,
    "encoder": "cnn",
    "precision": "cholesky",
    "initial_precision": 0.1,
    "learning_rate": 3e-3,
    "prior_learning_rate": 1e-2,
    "schedule": "cosine",
}

RECIPES: dict[str, dict[str, Any]] = {
    "linear": {
        "encoder": "linear",
        "precision": "cholesky",
        "initial_precision": 1.0,
        "learning_rate": 3e-2,
        "max_steps": 2000,
    },
    "vector": NONLINEAR | {"encoder": "mlp", "max_steps": 3000},
    "pendulum": NONLINEAR | {"max_steps": 4000},
    "double-pendulum": NONLINEAR | {"max_steps": 3000},
    "tracking": NONLINEAR | {"max_steps": 2000},
}

# One recipe per family; what a single task of it needs otherwise (say, the time it is given) is said here.
EXCEPTIONS: dict[str, dict[str, Any]] = {
    "pendulum-64": {"max_steps": 2500},
}


def recipe(task: str) -> dict[str, Any]:
    """The settings for a task."""
    settings = RECIPES[FAMILIES[task]] | EXCEPTIONS.get(task, {})
    if task in TRUE_DIMENSIONS:
        settings = {"latent_dim": TRUE_DIMENSIONS[task], **settings}
    return settings
