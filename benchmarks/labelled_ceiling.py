"""What the networks could do if they were shown the answers: `python benchmarks/labelled_ceiling.py TASK [STEPS] ...`.

Takes the RP-GSSM of the task's recipe (changed by settings `name=value`), adds a line from the smoothed means to the
targets, and trains all of it by the squared error of the standardised targets, a thing that needs labels and is no
longer the model of the library. Prints what `learning_curve.py` prints: the same encoder, the same chain, the same
regression. No test sequence is used.
"""

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from learning_curve import Printer, settings_from

from rpgssm import RPGSSM, core
from rpgssm.data import as_sequences
from rpgssm.experiments.recipes import recipe
from rpgssm.tasks import load_task
from rpgssm.training import TrainingConfig, train


class Labelled(eqx.Module):
    """A model with a readout."""

    model: Any
    weights: jax.Array
    bias: jax.Array

    def project(self) -> "Labelled":
        return Labelled(self.model.project(), self.weights, self.bias)


def squared_error(labelled: Labelled, batch, key):
    """The labels come as controls."""
    model = labelled.model
    means = core.smooth(model.chain(batch.time), model.potentials(batch)).mean
    error = jnp.mean((batch.controls - means @ labelled.weights - labelled.bias) ** 2)
    return error, {"error": error}


def main(name: str, *rest: str) -> None:
    steps, changes = settings_from(rest, 300)
    task = load_task(name)
    settings: dict[str, Any] = recipe(name) | changes
    print(name, "with labels,", steps, "steps", settings, flush=True)
    estimator = RPGSSM(**settings | {"max_steps": 1}, verbose=False).fit(task.train.observations)
    y = np.concatenate([task.train.targets[name] for name in task.target_names], -1).astype(np.float32)
    y = (y - y.mean((0, 1))) / y.std((0, 1))
    data, _ = as_sequences(task.train.observations, controls=y)
    k = estimator.model_.latent_dim
    labelled = Labelled(estimator.model_, jnp.zeros((k, y.shape[-1])), jnp.zeros(y.shape[-1]))
    config = TrainingConfig(max_steps=steps, batch_size=32, learning_rate=3e-3, schedule="cosine")
    show = Printer(task, max(steps // 4, 1))

    def callback(report) -> None:
        estimator.model_ = report.model.model
        show(estimator, report)

    train(labelled, squared_error, data, config, project=Labelled.project, callbacks=[callback], progress=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
