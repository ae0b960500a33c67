"""Held-out linear R² for different ways to start and to train, on a quick task.

    python benchmarks/recipes.py [STEPS] [NAME ...]

Trains a model per setting on `pendulum-vector` (300 sequences, K = 16, an MLP encoder) and prints the last training
loss, the R² of both targets and the largest eigenvalues of A.
"""

import sys
import time

import numpy as np

from rpgssm import RPGSSM
from rpgssm.evaluation import LinearReadout
from rpgssm.tasks import load_task

SETTINGS = {
    "0.9 I": {},
    "0.5 I": {"initial_scale": 0.5},
    "0.99 I": {"initial_scale": 0.99},
    "rotations 0.9": {"initial_transition": "rotation"},
    "rotations 0.98": {"initial_transition": "rotation", "initial_scale": 0.98},
    "prior rate 1e-2": {"prior_learning_rate": 1e-2},
    "prior rate 3e-2": {"prior_learning_rate": 3e-2},
    "rate 1e-2": {"learning_rate": 1e-2},
    "precision 10": {"initial_precision": 10.0},
    "precision 0.1": {"initial_precision": 0.1},
    "cholesky": {"precision": "cholesky"},
    "cholesky 0.1": {"precision": "cholesky", "initial_precision": 0.1},
    "cholesky 0.1, prior 1e-2": {"precision": "cholesky", "initial_precision": 0.1, "prior_learning_rate": 1e-2},
    "dependent": {"data_dependent": True},
    "pooled, cholesky 0.1, prior 1e-2": {
        "marginal": "pooled",
        "precision": "cholesky",
        "initial_precision": 0.1,
        "prior_learning_rate": 1e-2,
    },
    "dependent, cholesky 0.1, prior 1e-2": {
        "data_dependent": True,
        "precision": "cholesky",
        "initial_precision": 0.1,
        "prior_learning_rate": 1e-2,
    },
}


def main() -> None:
    steps, *names = [*sys.argv[1:], *["1000"][len(sys.argv) - 1 :]]
    task = load_task("pendulum-vector", n_train=300, n_test=50)
    for name in names or SETTINGS:
        began = time.perf_counter()
        model = RPGSSM(
            latent_dim=16,
            encoder="mlp",
            max_steps=int(steps),
            validation_fraction=None,
            verbose=False,
            **({"precision": "diagonal", "initial_precision": 1.0, "learning_rate": 3e-3} | SETTINGS[name]),
        ).fit(task.train.observations)
        seconds = time.perf_counter() - began
        train, test = (model.transform(split.observations) for split in (task.train, task.test))
        scores = LinearReadout.fit(train, task.train.targets).score(test, task.test.targets)
        radii = np.sort(np.abs(np.linalg.eigvals(model.transition_)))[::-1][:4]
        numbers = "  ".join(f"{target} {score:.3f}" for target, score in scores.items())
        loss = model.history_["loss"][-5:].mean()
        print(f"{name:<36} {seconds:6.1f} s  loss {loss:.3f}  {numbers}  |λ| {radii.round(3)}", flush=True)


if __name__ == "__main__":
    main()
