"""How much of the time of training is not spent on the device (printed with `pytest -m slow -s`)."""

import time

import equinox as eqx
import jax
import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest
from jaxtyping import Array, Float

from rpgssm.core import Potentials, Precision, StationaryChain, free_energy, project_singular_values
from rpgssm.data import Modality, Sequences
from rpgssm.training import Adam, Training, train
from rpgssm.training.program import Program


class Linear(eqx.Module):
    """A small linear recognition model: what the loop costs is most visible where a step costs little."""

    encoder: Float[Array, "d k"]
    log_precision: Float[Array, " k"]
    A: Float[Array, "k k"]


def objective(model, batch, key):
    h = jnp.einsum("ntd,dk->ntk", batch.modalities["x"].frames(), model.encoder)
    precision = Precision(jnp.exp(model.log_precision), shared=True, diagonal=True)
    return free_energy(StationaryChain(model.A), Potentials(h, precision))


@pytest.mark.slow
def test_overhead_is_below_two_percent(monkeypatch, well_compiled):
    rng = np.random.default_rng(0)
    data = Sequences({"x": Modality(rng.normal(size=(200, 100, 20)).astype(np.float32))})
    model = Linear(
        0.1 * jr.normal(jr.key(0), (20, 5), jnp.float32), jnp.zeros(5, jnp.float32), 0.9 * jnp.eye(5, dtype=jnp.float32)
    )
    device, marks = [], []

    def timed(method):
        def run(self, *arguments):
            began = time.perf_counter()
            result = jax.block_until_ready(method(self, *arguments))
            device.append(time.perf_counter() - began)
            return result

        return run

    monkeypatch.setattr(Program, "advance", timed(Program.advance))
    monkeypatch.setattr(Program, "evaluate", timed(Program.evaluate))

    def mark(report):
        marks.append((time.perf_counter(), len(device), report.step))

    settings = Training(max_steps=1000, learning_rate=1e-3, optimizer=Adam(schedule="constant"))

    def project(model):
        return eqx.tree_at(lambda m: m.A, model, project_singular_values(model.A))

    train(model, objective, data, settings, validation=data, project=project, callbacks=[mark], progress=True)
    (began, first, step), (ended, last, end) = marks[0], marks[-1]
    spent = sum(device[first:last])
    overhead = 1 - spent / (ended - began)
    print(f"{1e3 * spent / (end - step):.2f} ms per step on the device, host overhead {100 * overhead:.2f} %")
    assert overhead < 0.02
