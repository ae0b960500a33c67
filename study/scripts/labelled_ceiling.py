"""A ceiling for the networks: the same model trained with labels.

    python study/scripts/labelled_ceiling.py TASK [STEPS] [name=value ...]

Takes the RP-GSSM of the first stage of the task's recipe (changed by settings), adds a line from the smoothed means to
the targets, and trains all of it by the squared error of the standardised targets. The library has no such model, as it
needs labels. Prints the scores of `learning_curve.py`: encoder, chain and regression are the same. No test sequence is
used.
"""

import sys
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from learning_curve import Printer, settings_of, split_number

from rpgssm import RPGSSM, core
from rpgssm.data import as_sequences
from rpgssm.settings import text
from rpgssm.training import Training, train
from rpgssm_study.recipes import recipe
from rpgssm_study.runs import stages
from rpgssm_study.tasks import load_task


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
    steps, words = split_number(rest, 300)
    task = load_task(name)
    settings = dict(stages(recipe(name))[0]) | settings_of(words) | {"max_steps": 1, "verbose": False}
    estimator = RPGSSM(**settings).fit(task.train.observations)
    print(name, "with labels,", steps, "steps", text(estimator), flush=True)
    y = np.concatenate([task.train.targets[target] for target in task.target_names], -1).astype(np.float32)
    y = (y - y.mean((0, 1))) / y.std((0, 1))
    data, _ = as_sequences(task.train.observations, controls=y)
    k = estimator.model_.latent_dim
    labelled = Labelled(estimator.model_, jnp.zeros((k, y.shape[-1])), jnp.zeros(y.shape[-1]))
    show = Printer(task, max(steps // 4, 1))

    def callback(report) -> None:
        estimator.model_ = report.model.model
        show(estimator, report)

    training = Training(max_steps=steps, batch_size=32, learning_rate=3e-3, window=None)
    train(labelled, squared_error, data, training, project=Labelled.project, callbacks=[callback], progress=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
