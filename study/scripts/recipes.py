"""Held-out linear R² for different starts and rates on a quick task.

    python study/scripts/recipes.py [STEPS] [NAME ...]

Trains a model per setting on `pendulum-vector` (300 sequences, K = 16, an MLP encoder) and prints the last training
loss, the R² of both targets and the largest eigenvalues of A.
"""

import sys
import time
from typing import Any

import numpy as np

from rpgssm import RPGSSM, Adam, Cholesky, Diagonal, PooledMarginal, Prior
from rpgssm.evaluation import LinearReadout
from rpgssm_study.tasks import load_task

PRIOR_RATE = {"optimizer": Adam(prior_rate=1e-2)}
SETTINGS: dict[str, dict[str, Any]] = {
    "0.98 I": {},
    "0.9 I": {"prior": Prior(scale=0.9)},
    "0.5 I": {"prior": Prior(scale=0.5)},
    "0.99 I": {"prior": Prior(scale=0.99)},
    "rotations 0.9": {"prior": Prior(start="rotation", scale=0.9)},
    "rotations 0.98": {"prior": Prior(start="rotation", scale=0.98)},
    "prior rate 1e-2": PRIOR_RATE,
    "prior rate 3e-2": {"optimizer": Adam(prior_rate=3e-2)},
    "rate 1e-2": {"learning_rate": 1e-2},
    "precision 10": {"precision": Diagonal(start=10.0)},
    "precision 0.1": {"precision": Diagonal(start=0.1)},
    "cholesky": {"precision": Cholesky(start=1.0)},
    "cholesky 0.1": {"precision": Cholesky(start=0.1)},
    "cholesky 0.1, prior 1e-2": PRIOR_RATE | {"precision": Cholesky(start=0.1)},
    "dependent": {"precision": Diagonal(data_dependent=True, start=1.0)},
    "pooled, cholesky 0.1, prior 1e-2": PRIOR_RATE | {"precision": Cholesky(start=0.1), "marginal": PooledMarginal(8)},
    "dependent, cholesky 0.1, prior 1e-2": PRIOR_RATE | {"precision": Cholesky(data_dependent=True, start=0.1)},
}
COMMON: dict[str, Any] = {
    "latent_dim": 16,
    "encoder": "mlp",
    "precision": Diagonal(start=1.0),
    "learning_rate": 3e-3,
    "validation_fraction": None,
    "verbose": False,
}


def main() -> None:
    steps, *names = [*sys.argv[1:], *["1000"][len(sys.argv) - 1 :]]
    task = load_task("pendulum-vector", n_train=300, n_test=50)
    for name in names or SETTINGS:
        began = time.perf_counter()
        model = RPGSSM(max_steps=int(steps), **COMMON | SETTINGS[name]).fit(task.train.observations)
        seconds = time.perf_counter() - began
        train, test = (model.transform(split.observations) for split in (task.train, task.test))
        scores = LinearReadout.fit(train, task.train.targets).score(test, task.test.targets)
        radii = np.sort(np.abs(np.linalg.eigvals(model.transition_)))[::-1][:4]
        numbers = "  ".join(f"{target} {score:.3f}" for target, score in scores.items())
        loss = model.history_["loss"][-5:].mean()
        print(f"{name:<36} {seconds:6.1f} s  loss {loss:.3f}  {numbers}  |λ| {radii.round(3)}", flush=True)


if __name__ == "__main__":
    main()
