"""The contract of models: the methods that estimators, evaluation and reports call.

A model is a frozen pytree. Its methods take batches of masked sequences (`Sequences`). It defines those of the table
that it can compute; `abilities` lists them.

| method                                                | result                                                       |
|-------------------------------------------------------|--------------------------------------------------------------|
| `smooth(batch)`                                       | latents given all frames: `.mean`, `.cov`, `.log_z`          |
| `filter(batch)`                                       | latents given the frames so far                              |
| `forecast(batch, steps, controls, samples, key)`      | latents after the last frame: `.mean`, `.cov`, `.samples`    |
| `sample(key, length, count, controls)`                | trajectories from the prior (count, length, k)               |
| `sample_posterior(key, batch, samples)`               | trajectories from the posterior (samples, n, length, k)      |
| `online_step(state, batch, controls)`                 | one more frame: the new state, and its latents               |
| `embed(batch)`                                        | latents given each frame alone, by modality                  |
| `reconstruct(batch)`, `decode(latents)`               | frames, by modality, for models with an emission             |

A model with a Gaussian chain and recognition potentials is a `ChainModel`: it defines `chain` and `potentials`, and
inherits the other methods.
"""

from abc import abstractmethod
from typing import Any, TypeVar

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Float, Int, PRNGKeyArray

from rpgssm import core
from rpgssm.core import Chain, Forecast, Moments, OnlineOutput, OnlineState, Posterior, Potentials
from rpgssm.data import Sequences
from rpgssm.data.sequences import AnyArray

ABILITIES = (
    *("smooth", "filter", "forecast", "sample", "sample_posterior"),
    *("online_step", "embed", "reconstruct", "decode"),
)

Controls = Float[AnyArray, "n t u"] | Int[AnyArray, "n t"]
M = TypeVar("M", bound="Model")


def abilities(model_type: type) -> frozenset[str]:
    """The methods of this module's table that models of a class have."""
    return frozenset(name for name in ABILITIES if hasattr(model_type, name))


class Fixed(eqx.Module):
    """A module with arrays that are never trained."""


class Marginals(eqx.Module):
    """Gaussian marginals of the latents, for models without log Z or without covariances (else `core.Posterior`)."""

    mean: Float[Array, "n t k"]
    cov: Float[Array, "n t k k"] | None = None
    log_z: Float[Array, " n"] | None = None


class Model(eqx.Module):
    """A model with latents. It defines the methods of this module's table that it can compute."""

    @property
    @abstractmethod
    def latent_dim(self) -> int:
        """The number of latent dimensions."""

    def project(self: M) -> M:
        """The nearest permitted model. Training calls this after every step."""
        return self


class ChainModel(Model):
    """A model with a Gaussian chain as prior and a Gaussian potential for each frame."""

    @abstractmethod
    def chain(self, length: int, controls: Controls | None = None) -> Chain:
        """The prior chain of sequences of this length."""

    @abstractmethod
    def potentials(self, batch: Sequences) -> tuple[Potentials, ...]:
        """The potentials of each modality, in alphabetical order; zero where nothing was observed."""

    def smooth(self, batch: Sequences) -> Posterior:
        return core.smooth(self.chain(batch.time, batch.controls), self.potentials(batch))

    def filter(self, batch: Sequences) -> Posterior:
        return core.filter(self.chain(batch.time, batch.controls), self.potentials(batch))

    def forecast(
        self,
        batch: Sequences,
        steps: int,
        controls: Controls | None = None,
        samples: int = 0,
        key: PRNGKeyArray | None = None,
    ) -> Forecast:
        """Follow the chain from the filtered marginals of the last frames; `controls` begin with these frames."""
        return forecast_from(self.filter(batch), batch, self.chain(steps + 1, controls), steps, samples, key)

    def sample(
        self, key: PRNGKeyArray, length: int, count: int, controls: Controls | None = None
    ) -> Float[Array, "s t k"]:
        chain = self.chain(length, controls)
        if controls is None:
            return core.sample_prior(key, chain, length, count)
        return core.sample_prior(key, chain, length, 1)[0]

    def sample_posterior(self, key: PRNGKeyArray, batch: Sequences, samples: int) -> Float[Array, "s n t k"]:
        return core.sample_posterior(key, self.chain(batch.time, batch.controls), self.potentials(batch), samples)

    def online_step(
        self, state: OnlineState | None, batch: Sequences, controls: Controls | None = None
    ) -> tuple[OnlineState, OnlineOutput]:
        """Condition on one frame. `state` is the one after the last frame, before the transition to this one."""
        p = self.potentials(batch)
        h = sum((x.masked_h()[:, 0] for x in p[1:]), p[0].masked_h()[:, 0])
        Lam = sum((x.masked_precision()[:, 0] for x in p[1:]), p[0].masked_precision()[:, 0])
        chain = self.chain(2, controls)
        if isinstance(chain, core.StationaryChain):
            return core.online_step(chain, core.online_start(chain) if state is None else state, h, Lam)
        # general chains: make the transition to this frame, then condition on it without a further transition
        if state is None:
            before = core.online_start(chain)
        else:
            at_last = eqx.tree_at(lambda s: s.time, state, jnp.zeros_like(state.time))
            before, _ = core.online_step(chain, at_last, jnp.zeros_like(h), jnp.zeros_like(Lam))
        _, out = core.online_step(chain, before, h, Lam)
        return OnlineState(out.mean, out.cov, out.log_z, before.time), out


def forecast_from(
    marginals: Any, batch: Sequences, chain: Chain, steps: int, samples: int = 0, key: PRNGKeyArray | None = None
) -> Forecast:
    """Follow a chain from the marginals of each sequence's last frame."""
    n, last = len(batch), last_frames(batch)
    cov = jnp.broadcast_to(marginals.cov, (n, *marginals.cov.shape[1:]))
    now = Moments(marginals.mean[jnp.arange(n), last], cov[jnp.arange(n), last])
    return core.forecast(chain, now, steps, samples=samples, key=key)


def last_frames(batch: Sequences) -> Int[Array, " n"]:
    """The index of each sequence's last frame."""
    return jnp.full((len(batch),), batch.time - 1) if batch.lengths is None else jnp.asarray(batch.lengths) - 1
