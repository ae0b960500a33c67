"""The free energy at the true parameters of a linear task, and after training from there.

    python study/scripts/linear_objective.py [STEPS]

The true emission x ~ N(Cz + d, R) gives the potentials h = C'R⁻¹(x - d), Λ = C'R⁻¹C. They are scaled by several
numbers s: below 1, recognition factors are wider than the true ones. Training starts from s = 0.03. All of it is done
for three distributions of observations: the batch's frames at the same time (empirical), at all times (pooled), and a
Gaussian.
"""

import sys

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm import EmpiricalMarginal, GaussianMarginal, PooledMarginal, Stationary
from rpgssm.data import as_sequences
from rpgssm.estimator import answers
from rpgssm.evaluation import LinearReadout
from rpgssm.methods.rpgssm import FreeEnergy, RPGSSMModel
from rpgssm.nn import Recognition, make_encoder, make_head
from rpgssm.training import Training, train
from rpgssm_study.tasks import load_task


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
    prior = Stationary(start=A).make(latents, 1.0, None, None, key)
    return RPGSSMModel(prior, {"observations": Recognition(encoder, head)})


def main() -> None:
    steps = int(sys.argv[1]) if len(sys.argv) > 1 else 1500
    task = load_task("linear-large")
    data, _ = as_sequences(task.train.observations)

    def score(model: RPGSSMModel) -> float:
        splits = [as_sequences(x.observations)[0] for x in (task.train, task.test)]
        means = [np.asarray(answers(model, "smooth", x).mean) for x in splits]
        return LinearReadout.fit(means[0], task.train.targets).score(means[1], task.test.targets)["z"]

    empirical, pooled, gaussian = EmpiricalMarginal(), PooledMarginal(task.train.time), GaussianMarginal()
    for marginal, batch in ((empirical, 32), (empirical, 180), (pooled, 32), (gaussian, 32)):
        objective = FreeEnergy(marginal)
        name = type(marginal).__name__.removesuffix("Marginal").lower()
        row = f"{name:<9}  batch {batch:3d}"
        for s in (1, 0.1, 0.03, 0.01):
            model = true_model(task, s)
            loss = float(objective(model, data.take(np.arange(batch)), jax.random.key(0))[0])
            print(f"{row}  truth scaled by {s:<5} loss {loss:7.3f}  R² {score(model):.3f}", flush=True)
        settings = Training(max_steps=steps, learning_rate=1e-3, batch_size=batch)
        start = true_model(task, 0.03)
        trained = train(start, objective, data, settings, project=RPGSSMModel.project, progress=False)
        loss = trained.history["loss"][-10:].mean()
        print(f"{row}  trained from 0.03     loss {loss:7.3f}  R² {score(trained.model):.3f}", flush=True)


if __name__ == "__main__":
    main()
