"""The recognition-parametrised Gaussian state space model (RP-GSSM): a prior chain and a recognition network.

Frames → encoder → potentials → chain → free energy. Training, smoothing, filtering and forecasts use the same
potentials and the same chain.
"""

from dataclasses import dataclass, replace
from typing import Any, Literal

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
import numpy as np
from jaxtyping import Array, Bool, Float, PRNGKeyArray, Shaped

from rpgssm.core import Chain, Potentials, free_energy
from rpgssm.core.linalg import mv, spd_inverse
from rpgssm.data import Sequences
from rpgssm.estimator import DataInfo, GradientEstimator
from rpgssm.model import ChainModel, Controls
from rpgssm.nn.build import all_linear, build_recognition, keys_for, nothing_trained
from rpgssm.nn.heads import Cholesky, PrecisionForm, Recognition, precision_setting, recognise
from rpgssm.nn.priors import AnyPrior, Prior
from rpgssm.settings import Behaviour, setting
from rpgssm.training import Optimizer

LINEAR_RATES, RATES = (3e-2, 3e-2), (3e-3, 1e-3)  # of the networks, and of the prior
LINEAR_SCALE, SCALE = 0.9, 0.98  # of the transition matrix, at the start
START = 0.1  # of precisions


class RPGSSMModel(ChainModel):
    """The parameters: the prior, and a recognition network for each modality."""

    prior: AnyPrior
    recognition: dict[str, Recognition]

    @property
    def latent_dim(self) -> int:
        return self.prior.latent_dim

    def chain(self, length: int, controls: Controls | None = None) -> Chain:
        return self.prior.chain(length, controls)

    def potentials(self, batch: Sequences) -> tuple[Potentials, ...]:
        return recognise(self.recognition, batch)

    def embed(self, batch: Sequences) -> dict[str, Float[Array, "b t k"]]:
        """The mean of the recognition factor of each frame, by modality; zero where nothing was observed."""
        means = {}
        for name, m in batch.modalities.items():
            mask = m.device_mask()
            values = recognised_mean(self.recognition[name], m.frames(), mask)
            means[name] = values if mask is None else jnp.where(mask[..., None], values, jnp.zeros_like(values))
        return means

    def project(self) -> "RPGSSMModel":
        """The nearest model with a stable chain."""
        return eqx.tree_at(lambda m: m.prior, self, self.prior.project())


def recognised_mean(
    recognition: Recognition, frames: Shaped[Array, "b t *frame"], mask: Bool[Array, "b t"] | None = None
) -> Float[Array, "b t k"]:
    """The mean of the recognition factor f(z | x) ∝ N(z; 0, I) fΔ(z | x) of each frame: (I + Λ)⁻¹ h."""
    p = recognition(frames, mask)
    Lam = p.precision.dense()
    S, _ = spd_inverse(Lam + jnp.eye(Lam.shape[-1], dtype=Lam.dtype), 1.0)
    return mv(S, p.h)


class Marginal(Behaviour, abstract=True):
    """The distribution of observations in the free energy."""


class EmpiricalMarginal(Marginal):
    """The frames of the batch at the same time."""


class PooledMarginal(Marginal):
    """The frames of the batch at several times, for stationary data."""

    times: int = setting(8, "Number of times to take frames from.", least=1, kw_only=False)


class GaussianMarginal(Marginal):
    """A Gaussian with the moments of the batch's frames: for linear or fixed encoders, and a constant precision."""


@dataclass(frozen=True)
class FreeEnergy:
    """The objective: minus the auxiliary free energy per observed frame.

    With a `PooledMarginal` each frame is compared with the frames of the batch at its own time and at other times that
    the key chooses.
    """

    marginal: Marginal = EmpiricalMarginal()  # noqa: RUF009 (it is frozen)
    posterior_gradient: bool = True

    def __call__(
        self, model: RPGSSMModel, batch: Sequences, key: PRNGKeyArray | None = None
    ) -> tuple[Float[Array, ""], dict[str, Any]]:
        offsets = None
        times = self.marginal.times if isinstance(self.marginal, PooledMarginal) else 1
        if times > 1:
            if key is None:
                raise ValueError("a PooledMarginal draws times at random: pass a key")
            others = jr.permutation(key, jnp.arange(1, batch.time, dtype=jnp.int32))[: times - 1]
            offsets = jnp.concatenate([jnp.zeros(1, jnp.int32), others])
        loss, terms = free_energy(
            model.chain(batch.time, batch.controls),
            model.potentials(batch),
            reference=model.prior.reference(),
            posterior_gradient=self.posterior_gradient,
            marginal="gaussian" if isinstance(self.marginal, GaussianMarginal) else "empirical",
            offsets=offsets,
        )
        count = jnp.maximum(terms.observed, 1)
        per_sequence = {
            "log_z": terms.log_z,
            "posterior": terms.posterior.sum(0),
            "recognition": terms.recognition.sum(0),
            "mixture": terms.mixture.sum(0),
        }
        info: dict[str, Any] = {name: term.sum() / count for name, term in per_sequence.items()}
        return loss, info | {"per_sequence": per_sequence | {"free_energy": terms.free_energy}}


class RPGSSM(GradientEstimator):
    """Recognition-parametrised Gaussian state space model.

    Learns, by maximum likelihood and without reconstructing the observations, a linear Gaussian chain of latents and a
    network that recognises them in each frame.

    Attributes
    ----------
    model_ : the fitted parameters, an Equinox module.
    history_ : table of the training, by column name.
    n_steps_, best_step_, stopped_ : when and why training ended.
    notes_ : conversions of the data and choices made.
    transition_ : A of the fitted chain, where there is one A.
    """

    model_type = RPGSSMModel
    title = "RP-GSSM"
    takes_controls = True

    precision: PrecisionForm = precision_setting(Cholesky())
    prior: Prior = setting(
        Prior(), "Prior over trajectories; by default controlled if there are controls, else stationary."
    )
    marginal: Marginal | Literal["auto"] = setting(
        "auto",
        "Distribution of observations. 'auto': Gaussian for linear encoders with constant precision, else empirical.",
    )
    posterior_gradient: bool = setting(
        True, "False stops the gradient at the posterior, as in EM; tends to diverge.", neutral=True
    )
    learning_rate: float | None = None

    def resolved(self) -> dict[str, Any]:
        linear, optimizer = all_linear(self.encoder), self.optimizer
        rate, of_prior = LINEAR_RATES if linear else RATES
        if self.learning_rate is not None:  # then also that of the prior
            rate, of_prior = float(self.learning_rate), None
        if isinstance(optimizer, Optimizer) and optimizer.prior_rate is None and of_prior is not None:
            optimizer = replace(optimizer, prior_rate=of_prior)
        scale = self.prior.scale
        return {
            "learning_rate": rate,
            "optimizer": optimizer,
            "prior": replace(self.prior, scale=(LINEAR_SCALE if linear else SCALE) if scale is None else scale),
            "marginal": self._marginal(),
        }

    def _marginal(self) -> Marginal:
        if self.marginal == "auto":
            gaussian = all_linear(self.encoder) and not self.precision.data_dependent
            return GaussianMarginal() if gaussian else EmpiricalMarginal()
        if isinstance(self.marginal, GaussianMarginal):
            if not nothing_trained(self.encoder):
                raise ValueError(
                    "marginal=GaussianMarginal() needs linear encoders: pass encoder='linear', or another marginal"
                )
            if self.precision.data_dependent:
                raise ValueError(
                    "marginal=GaussianMarginal() needs a constant precision: leave data_dependent=True out"
                )
        return self.marginal

    def objective(self) -> FreeEnergy:
        return FreeEnergy(self._marginal(), bool(self.posterior_gradient))

    def build(self, info: DataInfo, data: Sequences | None, seed: int) -> RPGSSMModel:
        k = int(self.latent_dim)
        of_prior, *keys = keys_for(seed, 1 + 2 * len(info.frame_shapes))
        scale = self.resolved()["prior"].scale
        recognition = build_recognition(
            self.encoder, info.frame_shapes, data, keys, precision=self.precision, latent_dim=k, start=START
        )
        made = self.prior.make(k, scale, info.control_dim, info.n_control_values, of_prior)
        return RPGSSMModel(made, recognition)

    def _score(self, data: Sequences) -> float:
        return self._compared_score(self._in_windows(data), "free_energy", lambda batch, _: observed(batch), self._key)

    def _form(self) -> str:
        kind = self.prior.kind_for(self._data_info.controlled)
        form = f"{'data-dependent' if self.precision.data_dependent else 'constant'} {self.precision.kind}"
        return f", {kind} prior, {form} precision"

    def _networks(self, name: str) -> str:
        return f", {type(self.model_.recognition[name].encoder).__name__}"


def observed(batch: Sequences) -> np.ndarray:
    """The number of observations of each sequence, over all modalities."""
    everything = np.ones((len(batch), batch.time), bool)
    masks = (everything if m.mask is None else np.asarray(m.mask) for m in batch.modalities.values())
    return sum((mask.sum(1) for mask in masks), start=np.zeros(len(batch), int))
