"""The estimator of the linear Gaussian state space model."""

import time
from dataclasses import dataclass
from functools import partial
from typing import Any

import equinox as eqx
import jax
import numpy as np

from rpgssm import core
from rpgssm.data import Sequences
from rpgssm.estimator import inference
from rpgssm.estimator.base import DataInfo
from rpgssm.models.baselines.linear_gaussian import (
    LinearGaussianModel,
    Statistics,
    blank_model,
    maximise,
    statistics,
)
from rpgssm.models.baselines.linear_start import start_model
from rpgssm.training import History, Report

from .generative import BaselineEstimator

VALIDATE_EVERY = 10


@dataclass(eq=False, repr=False)
class LinearGaussianSSM(BaselineEstimator):
    """Linear Gaussian state space model, learned by expectation maximisation (EM): the classical model.

    Parameters
    ----------
    latent_dim : number of latent dimensions K.
    components : frames of more numbers than this (images) are reduced to as many principal components.
    max_steps : iterations of EM.
    tolerance : stop when the log-likelihood per frame grows by less than this in an iteration.
    random_state : seed of everything random, which is little: the start is that of principal components.
    verbose : print the log-likelihood now and then.

    Attributes
    ----------
    model_, history_, n_steps_, stopped_, notes_, transition_ : as for `RPGSSM`. The loss is minus the log-likelihood
        per frame, of principal components where there are such.
    """

    latent_dim: int = 8
    components: int = 50
    max_steps: int = 200
    tolerance: float = 1e-5
    random_state: int = 0
    verbose: bool = True

    # what the frame asks for and EM has no use for
    encoder = "auto"
    batch_size = 32
    window = None
    validation_fraction = None
    n_init = 1
    checkpoint_dir = None

    def _build(self, info: DataInfo, data: Sequences | None, seed: int) -> LinearGaussianModel:
        self._refuse_controls(info)
        most = int(self.components)
        if data is not None:
            return start_model(int(self.latent_dim), data, most, seed)
        sizes = {name: (shape, min(int(np.prod(shape)), most)) for name, shape in info.frame_shapes.items()}
        return blank_model(int(self.latent_dim), sizes)

    def _train(self, models: list[Any], data: Sequences, held_out: Sequences | None, window: Any, **more: Any) -> None:
        if more.get("resume"):
            raise ValueError("EM keeps no checkpoints: leave resume= out, and use partial_fit to go on")
        (model,), began, aside = models, time.perf_counter(), 0.0
        names = ("step", "loss", "validation_loss", "seconds") if held_out is not None else ("step", "loss", "seconds")
        history, before, self.stopped_ = History(names), -np.inf, "finished"
        for step in range(1, int(self.max_steps) + 1):
            s = expectations(model, data)
            value = float(s.log_likelihood) / max(int(data.observed()), 1)
            if not np.isfinite(value):
                raise ValueError(f"the log-likelihood is not finite in iteration {step}: try a smaller latent_dim")
            row = {"step": float(step), "loss": -value, "seconds": time.perf_counter() - began - aside}
            if held_out is not None and step % VALIDATE_EVERY == 1:
                row["validation_loss"] = -_mean_log_likelihood(model, held_out)
            history.append(row)
            if self.verbose and step % VALIDATE_EVERY == 1:
                print(f"EM {step}: log-likelihood per frame {value:.5g}", flush=True)
            paused = time.perf_counter()
            for callback in more.get("callbacks", ()):
                callback(Report(step, [row], history, model))
            aside += time.perf_counter() - paused
            if value - before < float(self.tolerance):
                self.stopped_ = "converged"
                break
            model, before = maximise(model, s), value
        self.history_ = history.columns
        self.model_, self.n_steps_, self.best_step_ = model, len(history), len(history)

    def _decoders(self) -> dict[str, Any]:
        return self.decoders_ or self.model_.emissions

    def score(self, X: Any, y: Any = None, *, mask: Any = None, controls: Any = None) -> float:
        """The log-likelihood per observed frame: higher is better. Of principal components where there are such."""
        return _mean_log_likelihood(self.model_, self._sequences(X, mask, controls)[0])

    def _headline(self) -> str:
        return f"Linear Gaussian state space model with {self.latent_dim} latent dimensions, by EM"

    def _parts(self, name: str) -> str:
        e = self.model_.emissions[name]
        return "as they are" if e.components is None else f"{len(e.components)} principal components"

    def fit_decoder(self, *args: Any, **kwargs: Any) -> Any:
        """Not needed: the model has an emission of its own, and `reconstruct` uses it."""
        raise ValueError("LinearGaussianSSM has an emission of its own: call reconstruct(X) without fit_decoder")


def expectations(model: LinearGaussianModel, data: Sequences) -> Statistics:
    """The E-step on all sequences, a batch at a time; sums in double precision on the host."""
    size = min(len(data), max(1, inference.FRAMES // data.time))
    total = None
    for start in range(0, len(data), size):
        stop = min(start + size, len(data))
        part = jax.device_get(_statistics(model, data.take(np.arange(start, stop))))
        part = jax.tree.map(lambda x: np.asarray(x, np.float64), part)
        total = part if total is None else jax.tree.map(np.add, total, part)
    assert total is not None
    return total


def _mean_log_likelihood(model: LinearGaussianModel, data: Sequences) -> float:
    values = inference.in_batches(partial(_log_likelihood, model), data)
    return float(np.sum(values, dtype=np.float64) / max(int(data.observed()), 1))


_statistics = eqx.filter_jit(statistics)


@eqx.filter_jit
def _log_likelihood(model: LinearGaussianModel, batch: Sequences):
    return model.log_likelihood(batch, core.filter(model.chain(batch.time), model.potentials(batch)).log_z)
