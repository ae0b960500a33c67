"""What a training step on images costs, beside the forward and backward pass of its encoder alone.

The step is the whole of it: choosing the batch from the data on the device, encoder, chain, free energy, gradient,
optimiser, projection. Both run in one process, in turns.
"""

import json
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm.bench.config import BenchTrainConfig
from rpgssm.bench.contestants import turn
from rpgssm.data import Modality, Sequences
from rpgssm.estimator import RPGSSM
from rpgssm.estimator.base import DataInfo
from rpgssm.models.rpgssm import RPGSSMModel, label, objective
from rpgssm.training import TrainingConfig
from rpgssm.training.batching import training_plan
from rpgssm.training.optimiser import Optimiser
from rpgssm.training.program import Program

BATCH, TIME, SIDE, LATENT = 32, 100, 24, 8
TARGET = 1.2
STEPS = 4  # optimiser steps per call


def run(config: BenchTrainConfig) -> None:
    """Print a table and, if asked to, write JSON."""
    rng = np.random.default_rng(0)
    data = Sequences({"frames": Modality(rng.random((2 * BATCH, TIME, SIDE, SIDE), np.float32))})
    rows = []
    for name in config.encoders:
        step, encoder = _measure(name, data, config.repeats)
        ratio = float(np.median(np.array(step) / np.array(encoder)))
        rows.append(
            {
                "encoder": name,
                "step_ms": 1e3 * float(np.median(step)),
                "encoder_ms": 1e3 * float(np.median(encoder)),
                "ratio": ratio,
                "target": TARGET,
                "met": ratio <= TARGET,
            }
        )
        print(
            f"{name:<10} training step {rows[-1]['step_ms']:8.1f} ms, encoder alone {rows[-1]['encoder_ms']:8.1f} ms, "
            f"ratio {ratio:.3f} (target <= {TARGET}: {'met' if ratio <= TARGET else 'missed'})",
            flush=True,
        )
    if config.output is not None:
        shape = {"batch": BATCH, "time": TIME, "frame": [SIDE, SIDE], "latent_dim": LATENT, "precision": "shared"}
        config.output.write_text(json.dumps({"shape": shape, "rows": rows}, indent=2) + "\n", encoding="utf-8")
        print(f"Written to {config.output}")


def _measure(encoder: str, data: Sequences, repeats: int) -> tuple[list[float], list[float]]:
    estimator = RPGSSM(latent_dim=LATENT, encoder=encoder)
    model = estimator._build(DataInfo.of(data), data, 0)
    one_step = _training_step(model, data)
    alone = _encoder_pass(model, data)
    pairs = [(turn(one_step) / STEPS, turn(alone)) for _ in range(repeats)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _training_step(model: RPGSSMModel, data: Sequences) -> Any:
    config = TrainingConfig(max_steps=10**6, batch_size=BATCH, steps_per_dispatch=STEPS)
    params, static = eqx.partition(model, eqx.is_inexact_array)
    plan = training_plan(data, BATCH, None)
    optimiser = Optimiser(config, params, label, None)
    program = Program(objective, static, plan, optimiser, config, project=RPGSSMModel.project, capacity=STEPS)
    on_device = jax.device_put(data)
    state = program.initial_state(params, 0, on_device)
    program.compile(state, on_device, None)
    alive = jnp.asarray(True)
    return lambda: jax.block_until_ready(program.advance(state, alive, on_device, 0, STEPS).state.params)


def _encoder_pass(model: RPGSSMModel, data: Sequences) -> Any:
    """Forward and backward pass of the encoder for one batch, with a given cotangent of the features.

    The features are returned too: otherwise the compiler sees that nobody wants them and leaves work out.
    """
    encoder = model.recognition["frames"].encoder
    params, static = eqx.partition(encoder, eqx.is_inexact_array)
    frames = jnp.asarray(data.modalities["frames"].values[:BATCH]).reshape(BATCH * TIME, SIDE, SIDE)
    cotangent = jax.random.normal(jax.random.key(0), (BATCH * TIME, encoder.out_dim))

    @jax.jit
    def gradient(params, frames):
        features, pull = jax.vjp(lambda p: eqx.combine(p, static)(frames), params)
        return features, pull(cotangent)

    return partial(_wait, gradient, params, frames)


def _wait(function, *arguments):
    return jax.block_until_ready(function(*arguments))
