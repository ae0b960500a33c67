"""The structured variational autoencoder with linear dynamics (SVAE-LDS).

An encoder turns each frame into a Gaussian potential on its latent, exactly as in the RP-GSSM, and q is the exact
posterior of the prior chain under these potentials. A decoder turns a sample of q into frames, and the ELBO trains all
of it together. Hidden frames have no potential.
"""

from typing import Any

import equinox as eqx
import jax.numpy as jnp
from jaxtyping import Array, Bool, PRNGKeyArray

from rpgssm.core import GaussianChain, Potentials, sample_posterior, smooth
from rpgssm.data import Sequences
from rpgssm.models.heads import Recognition

from .generative import Bound, ChainPrior, Emission, potential_kl, reconstruction
from .masking import as_missing


class SVAEModel(eqx.Module):
    """The parameters: prior chain, recognition networks, emissions."""

    prior: ChainPrior
    recognition: dict[str, Recognition]
    emissions: dict[str, Emission]

    @property
    def latent_dim(self) -> int:
        return self.prior.latent_dim

    def chain(self, length: int, controls: Any = None) -> GaussianChain:
        del controls  # there are none
        return self.prior.chain(length)

    def potentials(self, batch: Sequences) -> tuple[Potentials, ...]:
        """One set of potentials per modality, in alphabetical order; zero where nothing was observed."""
        return tuple(
            self.recognition[name](m.frames(), None if m.mask is None else jnp.asarray(m.mask))
            for name, m in sorted(batch.modalities.items())
        )

    def bound(self, batch: Sequences, key: PRNGKeyArray, hidden: Bool[Array, "n t"] | None = None) -> Bound:
        """The ELBO with one sample of the whole chain; its divergence is exact."""
        chain, potentials = self.chain(batch.time), self.potentials(as_missing(batch, hidden))
        latents = sample_posterior(key, chain, potentials)[0]
        kl = potential_kl(smooth(chain, potentials), potentials)
        return Bound(reconstruction(self.emissions, latents, batch), kl)

    def project(self) -> "SVAEModel":
        """The nearest model with a stable chain; applied after every optimiser step."""
        return eqx.tree_at(lambda m: m.prior, self, self.prior.project())
