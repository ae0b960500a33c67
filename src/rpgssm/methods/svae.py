"""The structured variational autoencoder with linear dynamics (SVAE-LDS).

An encoder turns each frame into a Gaussian potential on its latent, exactly as in the RP-GSSM, and q is the exact
posterior of the prior chain under these potentials. A decoder turns a sample of q into frames. The ELBO trains all
parameters together. Hidden frames have no potential.
"""

import equinox as eqx
from jaxtyping import Array, Bool, PRNGKeyArray

from rpgssm.core import GaussianChain, Potentials, sample_posterior, smooth
from rpgssm.data import Sequences
from rpgssm.estimator import DataInfo
from rpgssm.model import ChainModel, Controls
from rpgssm.nn.build import build_recognition, keys_for
from rpgssm.nn.emission import Emission
from rpgssm.nn.heads import Diagonal, PrecisionForm, Recognition, precision_setting, recognise
from rpgssm.nn.masking import as_missing

from ._generative import (
    Bound,
    ChainPrior,
    GenerativeEstimator,
    HasEmissions,
    make_chain_prior,
    potential_kl,
    reconstruction,
)

START = 1.0  # of precisions


class SVAEModel(ChainModel, HasEmissions):
    """The parameters: prior chain, recognition networks, emissions."""

    prior: ChainPrior
    recognition: dict[str, Recognition]
    emissions: dict[str, Emission]

    @property
    def latent_dim(self) -> int:
        return self.prior.latent_dim

    def chain(self, length: int, controls: Controls | None = None) -> GaussianChain:
        del controls
        return self.prior.chain(length)

    def potentials(self, batch: Sequences) -> tuple[Potentials, ...]:
        return recognise(self.recognition, batch)

    def bound(self, batch: Sequences, key: PRNGKeyArray, hidden: Bool[Array, "n t"] | None = None) -> Bound:
        """The ELBO with one sample of the whole chain; its divergence is exact."""
        chain, potentials = self.chain(batch.time), self.potentials(as_missing(batch, hidden))
        latents = sample_posterior(key, chain, potentials)[0]
        kl = potential_kl(smooth(chain, potentials), potentials)
        return Bound(reconstruction(self.emissions, latents, batch), kl)

    def project(self) -> "SVAEModel":
        """The nearest model with a stable chain."""
        return eqx.tree_at(lambda m: m.prior, self, self.prior.project())


class SVAE(GenerativeEstimator):
    """Structured variational autoencoder with linear dynamics (SVAE-LDS).

    Recognition networks give Gaussian potentials, as in the RP-GSSM. The posterior is that of the prior chain under
    them, and a decoder reconstructs every frame from it.
    """

    model_type = SVAEModel
    title = "SVAE"

    precision: PrecisionForm = precision_setting(Diagonal())

    def build(self, info: DataInfo, data: Sequences | None, seed: int) -> SVAEModel:
        count, k = len(info.frame_shapes), int(self.latent_dim)
        keys = keys_for(seed, 3 * count)
        of_recognition = keys[: 2 * count]
        recognition = build_recognition(
            self.encoder, info.frame_shapes, data, of_recognition, precision=self.precision, latent_dim=k, start=START
        )
        emissions = self.build_emissions(info, data, keys[2 * count :], k)
        return SVAEModel(prior=make_chain_prior(k, seed), recognition=recognition, emissions=emissions)
