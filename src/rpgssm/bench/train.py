"""What a training step costs: on images beside the forward and backward pass of its encoder alone, and (`methods`) of
every compared method.

The step is the whole of it: choosing the batch from the data on the device, encoder, chain, free energy, gradient,
optimiser, projection. All that is compared runs in one process, in turns.
"""

import json
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm.bench import methods
from rpgssm.bench.config import BenchTrainConfig
from rpgssm.bench.contestants import turn
from rpgssm.data import Modality, Sequences
from rpgssm.estimator import RPGSSM
from rpgssm.estimator.base import DataInfo
from rpgssm.models.rpgssm import RPGSSMModel

BATCH, TIME, SIDE, LATENT = 32, 100, 24, 8
TARGET = 1.2
STEPS = 4  # optimiser steps per call


def run(config: BenchTrainConfig) -> None:
    """Print tables and, if asked to, write JSON and a picture."""
    if config.figure is not None and not config.methods:
        raise ValueError("--figure draws the times of the methods: name some, or leave --methods out")
    measured: dict[str, Any] = {}
    if config.encoders:
        shape = {"batch": BATCH, "time": TIME, "frame": [SIDE, SIDE], "latent_dim": LATENT, "precision": "shared"}
        measured |= {"shape": shape, "rows": [_beside_encoder(name, config.repeats) for name in config.encoders]}
    if config.methods:
        sizes = methods.Shape(BATCH, TIME, config.mask_size)
        rows = methods.measure(config.methods, config.tasks, config.repeats, sizes)
        print(methods.table(rows))
        measured["methods"] = methods.section(rows, sizes)
        if config.figure is not None:
            methods.draw(rows, config.figure)
            print(f"Drawn in {config.figure}")
    if config.output is not None:
        before = json.loads(config.output.read_text(encoding="utf-8")) if config.output.exists() else {}
        config.output.write_text(json.dumps(before | measured, indent=2) + "\n", encoding="utf-8")
        print(f"Written to {config.output}")


def _beside_encoder(name: str, repeats: int) -> dict[str, Any]:
    """Time per step with an encoder and of the encoder alone, their ratio, and whether it is as small as aimed at."""
    rng = np.random.default_rng(0)
    data = Sequences({"frames": Modality(rng.random((2 * BATCH, TIME, SIDE, SIDE), np.float32))})
    step, encoder = _measure(name, data, repeats)
    ratio = float(np.median(np.array(step) / np.array(encoder)))
    row = {
        "encoder": name,
        "step_ms": 1e3 * float(np.median(step)),
        "encoder_ms": 1e3 * float(np.median(encoder)),
        "ratio": ratio,
        "target": TARGET,
        "met": ratio <= TARGET,
    }
    print(
        f"{name:<10} training step {row['step_ms']:8.1f} ms, encoder alone {row['encoder_ms']:8.1f} ms, "
        f"ratio {ratio:.3f} (target <= {TARGET}: {'met' if row['met'] else 'missed'})",
        flush=True,
    )
    return row


def _measure(encoder: str, data: Sequences, repeats: int) -> tuple[list[float], list[float]]:
    estimator = RPGSSM(latent_dim=LATENT, encoder=encoder, batch_size=BATCH)
    some_steps = methods.steps_of(estimator, data, STEPS)
    alone = _encoder_pass(estimator._build(DataInfo.of(data), data, 0), data)
    pairs = [(turn(some_steps) / STEPS, turn(alone) / STEPS) for _ in range(repeats)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _encoder_pass(model: RPGSSMModel, data: Sequences) -> Any:
    """Forward and backward passes of the encoder for one batch, with a given cotangent, as many as there are steps.

    Each pass starts from parameters that the one before has moved a little, and the features are added up: otherwise
    the compiler sees that nobody wants them and leaves work out.
    """
    encoder = model.recognition["frames"].encoder
    params, static = eqx.partition(encoder, eqx.is_inexact_array)
    frames = jnp.asarray(data.modalities["frames"].values[:BATCH]).reshape(BATCH * TIME, SIDE, SIDE)
    cotangent = jax.random.normal(jax.random.key(0), (BATCH * TIME, encoder.out_dim), frames.dtype)

    @jax.jit
    def passes(params, frames, cotangent):
        def once(params, _):
            features, pull = jax.vjp(lambda p: eqx.combine(p, static)(frames), params)
            moved = jax.tree.map(lambda p, g: p - 1e-9 * g, params, *pull(cotangent))
            return moved, jnp.sum(features)

        return jax.lax.scan(once, params, length=STEPS)

    return partial(_wait, passes, params, frames, cotangent)


def _wait(function, *arguments):
    return jax.block_until_ready(function(*arguments))
