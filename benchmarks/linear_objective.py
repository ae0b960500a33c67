"""What the free energy thinks of the true parameters of a linear task, and where training leads from there.

    python benchmarks/linear_objective.py [STEPS]

The true emission x ~ N(Cz + d, R) gives the potentials h = C'R⁻¹(x - d), Λ = C'R⁻¹C. They are scaled by several
numbers s, which stand for recognition factors more modest than the truth; then training starts from s = 0.03. All that
for different distributions of observations: the batch's frames at the same time (empirical), at all times (pooled), and
a Gaussian.
"""

import sys
from functools import partial

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm.data import as_sequences
from rpgssm.estimator import inference
from rpgssm.evaluation import LinearReadout
from rpgssm.models import Recognition, make_encoder, make_head
from rpgssm.models.priors import make_prior
from rpgssm.models.rpgssm import RPGSSMModel, label, objective
from rpgssm.tasks import load_task
from rpgssm.training import TrainingConfig, train


def true_model(task, s: float) -> RPGSSMModel:
    A, C, d, R = (np.asarray(task.parameters[name], np.float64) for name in ("B", "C", "d", "R"))
    observations, latents = C.shape
    W = s * np.linalg.solve(R, C)
    L = np.linalg.cholesky(C.T @ W)
    key = jax.random.key(0)
    head = make_head("cholesky", False, observations, latents, key=key, floor=0.0)
    raw = np.concatenate([np.log(np.expm1(np.diagonal(L))), L[np.tril_indices(latents, -1)]])
    values = (jnp.asarray(x, jnp.float32) for x in (W, -d @ W, raw))
    head = eqx.tree_at(lambda h: (h.to_h.weight, h.to_h.bias, h.raw), head, tuple(values))
    zero, one = np.zeros(observations, np.float32), np.ones(observations, np.float32)
    encoder = make_encoder("linear", (observations,), key=key, shift=zero, scale=one)
    return RPGSSMModel(
        make_prior("stationary", latents, key=key, initial=A), {"observations": Recognition(encoder, head)}
    )


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
    task = load_task("linear-large")
    data, _ = as_sequences(task.train.observations)

    def score(model) -> float:
        means = [
            np.asarray(inference.smooth(model, as_sequences(x.observations)[0]).mean) for x in (task.train, task.test)
        ]
        return LinearReadout.fit(means[0], task.train.targets).score(means[1], task.test.targets)["z"]

    def options(marginal: str) -> dict:
        pooled = marginal == "pooled"
        return {"marginal": "empirical" if pooled else marginal, "mixture_times": task.train.time if pooled else 1}

    for marginal, batch in (("empirical", 32), ("empirical", 180), ("pooled", 32), ("gaussian", 32)):
        goal = partial(objective, **options(marginal))
        row = f"{marginal:<9}  batch {batch:3d}"
        for s in (1, 0.1, 0.03, 0.01):
            model = true_model(task, s)
            loss = float(goal(model, data.take(np.arange(batch)), jax.random.key(0))[0])
            print(f"{row}  truth scaled by {s:<5} loss {loss:7.3f}  R² {score(model):.3f}", flush=True)
        config = TrainingConfig(max_steps=steps, learning_rate=1e-3, batch_size=batch, schedule="cosine")
        trained = train(
            true_model(task, 0.03), goal, data, config, project=RPGSSMModel.project, label=label, progress=False
        )
        loss = trained.history["loss"][-10:].mean()
        print(f"{row}  trained from 0.03     loss {loss:7.3f}  R² {score(trained.model):.3f}", flush=True)


if __name__ == "__main__":
    main()
