"""`rpgssm-study speed train`: the cost of training steps.

On images, a step is compared with the forward and backward pass of its encoder alone. `methods_compared` times a step
of each method. A step includes choosing the batch from the data on the device, encoder, chain, free energy, gradient,
optimizer and projection. All of it runs in one process, in turns.
"""

import json
from functools import partial
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from rpgssm.data import Modality, Sequences
from rpgssm.estimator import DataInfo
from rpgssm.methods.rpgssm import RPGSSM, RPGSSMModel
from rpgssm_study.speed import methods_compared
from rpgssm_study.speed.config import SpeedTrain
from rpgssm_study.speed.implementations import turn

BATCH, TIME, SIDE, LATENT = 32, 100, 24, 8
TARGET = 1.2
STEPS = 4  # optimizer steps per call


def run(config: SpeedTrain) -> None:
    """Print tables; write a JSON file and a figure if the options name them."""
    if config.figure is not None and not config.methods:
        raise ValueError("--figure draws the times of the methods: name some, or leave --methods out")
    measured: dict[str, Any] = {}
    if config.encoders:
        shape = {"batch": BATCH, "time": TIME, "frame": [SIDE, SIDE], "latent_dim": LATENT, "precision": "shared"}
        measured |= {"shape": shape, "rows": [_beside_encoder(name, config.repeats) for name in config.encoders]}
    if config.methods:
        sizes = methods_compared.Shape(BATCH, TIME, config.mask_size)
        rows = methods_compared.measure(config.methods, config.tasks, config.repeats, sizes)
        print(methods_compared.table(rows))
        measured["methods"] = methods_compared.section(rows, sizes)
        if config.figure is not None:
            methods_compared.draw(rows, config.figure)
            print(f"Drawn in {config.figure}")
    if config.output is not None:
        before = json.loads(config.output.read_text(encoding="utf-8")) if config.output.exists() else {}
        config.output.write_text(json.dumps(before | measured, indent=2) + "\n", encoding="utf-8")
        print(f"Written to {config.output}")


def _beside_encoder(name: str, repeats: int) -> dict[str, Any]:
    """Measure a step with an encoder and the encoder alone, and compare their ratio with the target."""
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
    some_steps = methods_compared.steps_of(estimator, data, STEPS)
    alone = _encoder_pass(estimator.build(DataInfo.of(data), data, 0), data)
    pairs = [(turn(some_steps) / STEPS, turn(alone) / STEPS) for _ in range(repeats)]
    return [a for a, _ in pairs], [b for _, b in pairs]


def _encoder_pass(model: RPGSSMModel, data: Sequences) -> Any:
    """Return a function that does `STEPS` forward and backward passes of the encoder for one batch.

    Each pass starts from parameters that the one before has moved a little, and the features are added up. Otherwise
    the compiler sees that they are not needed and leaves work out.
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
