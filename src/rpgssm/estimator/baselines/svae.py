"""The estimator of the structured variational autoencoder."""

from dataclasses import dataclass
from typing import Literal

from rpgssm.data import Sequences
from rpgssm.estimator.base import DataInfo
from rpgssm.estimator.building import build_recognition, keys_for
from rpgssm.models.baselines.generative import make_chain_prior
from rpgssm.models.baselines.svae import SVAEModel

from .generative import GenerativeEstimator


@dataclass(eq=False, repr=False)
class SVAE(GenerativeEstimator):
    """Structured variational autoencoder with linear dynamics (SVAE-LDS).

    Recognition networks give Gaussian potentials, as in the RP-GSSM; the posterior is that of the prior chain under
    them; and a decoder must reconstruct every frame from it.

    Parameters
    ----------
    latent_dim : number of latent dimensions K.
    encoder : as for `RPGSSM`.
    decoder : "auto" ("conv" for images, "mlp" for vectors), "linear", "mlp", "conv", or "conv-paper" (the larger one
        of the published comparisons).
    output : "sigmoid" for frames between 0 and 1, "linear" for any, "auto": a sigmoid for integer images.
    noise : standard deviation ν of a pixel or number around its mean, in the units of the data. It is not learned,
        and decides how much is reconstructed: try 1, 0.1 and 0.001.
    mask_size : frames of each sequence that are hidden from the encoder at each step, and have to be reconstructed all
        the same (at most half of the sequence); 0: none.
    mask_mode : "window" hides frames that follow each other, "random" frames anywhere.
    precision, data_dependent, initial_precision : of the potentials, as for `RPGSSM`.

    The other parameters, and the attributes, are those of `RPGSSM`.
    """

    precision: Literal["diagonal", "cholesky"] = "diagonal"
    data_dependent: bool = False
    initial_precision: float = 1.0

    _project = SVAEModel.project

    def _build(self, info: DataInfo, data: Sequences | None, seed: int) -> SVAEModel:
        self._refuse_controls(info)
        count, k = len(info.frame_shapes), int(self.latent_dim)
        keys = keys_for(seed, 3 * count)
        recognition = build_recognition(
            self.encoder,
            info.frame_shapes,
            data,
            keys[: 2 * count],
            precision=self.precision,
            data_dependent=bool(self.data_dependent),
            latent_dim=k,
            initial_precision=self.initial_precision,
        )
        return SVAEModel(make_chain_prior(k, seed), recognition, self._emissions(info, data, keys[2 * count :], k))

    def _headline(self) -> str:
        form = f"{'data-dependent' if self.data_dependent else 'constant'} {self.precision}"
        return f"SVAE with {self.latent_dim} latent dimensions, {form} precision, noise {self.noise:g}"

    def _parts(self, name: str) -> str:
        of, to = self.model_.recognition[name].encoder, self.model_.emissions[name].decoder
        return f"{type(of).__name__} and {type(to).__name__}"
