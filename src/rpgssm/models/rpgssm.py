"""The recognition-parametrised Gaussian state space model: a prior chain and one recognition network per modality.

Data flow one way: frames → encoder → potentials → chain → free energy. The same potentials and the same chain serve
training, smoothing, filtering and forecasts.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from rpgssm.core import Potentials, free_energy
from rpgssm.core.free_energy import Marginal
from rpgssm.core.types import Chain
from rpgssm.data import Sequences

from .heads import Recognition
from .priors import Prior


class RPGSSMModel(eqx.Module):
    """The parameters of the model: what training changes, and what is saved."""

    prior: Prior
    recognition: dict[str, Recognition]

    @property
    def latent_dim(self) -> int:
        return self.prior.latent_dim

    def chain(self, length: int, controls: Any = None) -> Chain:
        return self.prior.chain(length, controls)

    def potentials(self, batch: Sequences) -> tuple[Potentials, ...]:
        """One set of potentials per modality, in alphabetical order; zero where nothing was observed."""
        missing = set(self.recognition) ^ set(batch.modalities)
        if missing:
            raise ValueError(f"the model and the data do not have the same modalities: {', '.join(sorted(missing))}")
        pairs = ((self.recognition[name], batch.modalities[name]) for name in sorted(self.recognition))
        return tuple(r(m.frames(), None if m.mask is None else jnp.asarray(m.mask)) for r, m in pairs)

    def project(self) -> "RPGSSMModel":
        """The nearest model with a stable chain; applied after every optimiser step."""
        return eqx.tree_at(lambda m: m.prior, self, self.prior.project())


def objective(
    model: RPGSSMModel,
    batch: Sequences,
    key: Any = None,
    *,
    posterior_gradient: bool = True,
    marginal: Marginal = "empirical",
    mixture_times: int = 1,
) -> tuple[Float[Array, ""], dict[str, Any]]:
    """Minus the auxiliary free energy per observed frame, and its terms.

    With `mixture_times` above 1 each frame is compared with the batch's frames at so many times, its own and others
    chosen by the key, instead of its own alone.
    """
    offsets = None
    if mixture_times > 1:
        others = jr.permutation(key, jnp.arange(1, batch.time, dtype=jnp.int32))[: mixture_times - 1]
        offsets = jnp.concatenate([jnp.zeros(1, jnp.int32), others])
    loss, terms = free_energy(
        model.chain(batch.time, batch.controls),
        model.potentials(batch),
        reference=model.prior.reference(),
        posterior_gradient=posterior_gradient,
        marginal=marginal,
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


def label(path: str) -> str:
    """Which parameters belong to the prior, and which are fixed: the standardisation of frames."""
    parts = path.split(".")
    if "standardise" in parts:
        return "frozen"
    return "prior" if parts[0] == "prior" else "main"
