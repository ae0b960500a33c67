"""The deep Kalman filter: a variational autoencoder over sequences. A network computes q from all frames.

A bidirectional recurrent network (or convolutions over time) turns the features of all frames into one vector u_t per
frame, and small networks turn u_t into means μ_t and covariances Σ_t:

| posterior       | q                                                                         | divergence      |
|-----------------|---------------------------------------------------------------------------|-----------------|
| "mean-field"    | z_t ~ N(μ_t, Σ_t), independent                                            | exact           |
| "linear"        | z_t ~ N(A_q z_{t-1} + μ_t, Σ_t), A_q learned                              | exact           |
| "convolutional" | as "linear", u from three convolutions over time                          | exact           |
| "nonlinear"     | z_t ~ N(μ, Σ)(s_t), s_t a recurrent network over s_{t-1}, z_{t-1} and u_t | over one sample |

The first three are Gaussian chains ("mean-field" with A_q = 0). Hidden and missing frames are zeros to the network.
It does not see the padding after the end of a sequence.
"""

from itertools import pairwise
from typing import Any, Literal

import equinox as eqx
import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Bool, Float, PRNGKeyArray

from rpgssm.core import Forecast, GaussianChain, project_singular_values, sample_prior
from rpgssm.core.general import prior_covariances, prior_means, time_first
from rpgssm.core.linalg import mv
from rpgssm.data import Sequences
from rpgssm.estimator import DataInfo
from rpgssm.model import Marginals, forecast_from
from rpgssm.nn.build import build_encoders, keys_for
from rpgssm.nn.emission import Emission
from rpgssm.nn.heads import Head, Kind, make_head
from rpgssm.nn.layers import MLP, split, variance_scaling, zeros
from rpgssm.nn.masking import zeroed
from rpgssm.nn.priors import LIMIT
from rpgssm.nn.recurrent import GRU, BidirectionalGRU
from rpgssm.settings import setting

from ._generative import (
    FLOOR,
    Bound,
    ChainPrior,
    GenerativeEstimator,
    HasEmissions,
    chain_kl,
    conditional_kl,
    exists,
    make_chain_prior,
    over_time,
    reconstruction,
)

PosteriorKind = Literal["mean-field", "linear", "nonlinear", "convolutional"]
EVALUATION_SAMPLES = 25  # of the nonlinear posterior, to take means over


class TimeConvolutions(eqx.Module):
    """Convolutions along time, each followed by ReLU, with as many frames in the output as in the input.

    Frames that are not `there` are zeros in every layer, and so is everything before the first frame and after the
    last. Each is one matrix product over the frames that a kernel covers, which is faster on a CPU.
    """

    weights: tuple[Float[Array, "kernel i o"], ...]
    biases: tuple[Float[Array, " o"], ...]

    def __init__(
        self,
        in_dim: int,
        channels: int = 32,
        kernel: int = 20,
        layers: int = 3,
        *,
        key: PRNGKeyArray,
        dtype=jnp.float32,
    ):
        sizes = [in_dim, *[channels] * layers]
        shapes = [(kernel, i, o) for i, o in pairwise(sizes)]
        keys = split(key, layers)
        self.weights = tuple(variance_scaling(k, shape, 2.0, dtype) for k, shape in zip(keys, shapes, strict=True))
        self.biases = tuple(zeros((channels,), dtype) for _ in range(layers))

    @property
    def out_dim(self) -> int:
        return self.biases[-1].shape[0]

    def __call__(self, x: Float[Array, "n t i"], there: Bool[Array, "n t"] | None = None) -> Float[Array, "n t o"]:
        def existing(x):
            return x if there is None else jnp.where(there[..., None], x, jnp.zeros_like(x))

        t, x = x.shape[1], existing(x)
        for weight, bias in zip(self.weights, self.biases, strict=True):
            kernel, i, o = weight.shape
            before = (kernel - 1) // 2
            padded = jnp.pad(x, ((0, 0), (before, kernel - 1 - before), (0, 0)))
            covered = jnp.concatenate([padded[:, s : s + t] for s in range(kernel)], -1)
            x = existing(jax.nn.relu(covered @ weight.reshape(kernel * i, o) + bias[None, None]))
        return x


class GaussianHead(eqx.Module):
    """A small network from a vector to the mean and covariance of a Gaussian."""

    hidden: MLP
    head: Head  # with the mean as h, and the covariance as Λ

    def __init__(
        self,
        in_dim: int,
        width: int,
        latent_dim: int,
        kind: Kind,
        *,
        key: PRNGKeyArray,
        initial_variance: float = 1.0,
        dtype=jnp.float32,
    ):
        first, second = split(key, 2)
        self.hidden = MLP((in_dim, width), key=first, dtype=dtype)
        sizes = {"floor": FLOOR, "initial_precision": initial_variance}
        self.head = make_head(kind, True, width, latent_dim, key=second, dtype=dtype, **sizes)

    def __call__(self, u: Float[Array, "n t i"]) -> tuple[Float[Array, "n t k"], Float[Array, "n t k k"]]:
        n, t, i = u.shape
        mean, cov = self.head(self.hidden(u.reshape(n * t, i)).reshape(n, t, -1))
        return mean, cov.dense()


class DKFModel(HasEmissions):
    """The parameters: prior chain, the networks of q, emissions. `A_q` is None if q has no matrix of its own."""

    prior: ChainPrior
    encoders: dict[str, Any]
    network: BidirectionalGRU | TimeConvolutions
    head: GaussianHead
    A_q: Float[Array, "k k"] | None
    cell: GRU | None
    emissions: dict[str, Emission]
    posterior: PosteriorKind = eqx.field(static=True)
    shared: bool = eqx.field(static=True)

    def __init__(
        self,
        prior: ChainPrior,
        encoders: dict[str, Any],
        emissions: dict[str, Emission],
        posterior: PosteriorKind = "linear",
        *,
        hidden_dim: int | None = None,
        covariance: Kind = "diagonal",
        share_transition: bool = False,
        initial_variance: float = 0.1,
        key: PRNGKeyArray,
        dtype=jnp.float32,
    ):
        k = prior.latent_dim
        hidden = 2 * k if hidden_dim is None else hidden_dim
        features = sum(encoder.out_dim for encoder in encoders.values())
        first, second, third = split(key, 3)
        self.prior, self.encoders, self.emissions = prior, encoders, emissions
        if posterior == "convolutional":
            self.network = TimeConvolutions(features, key=first, dtype=dtype)
        else:
            self.network = BidirectionalGRU(features, hidden, key=first, dtype=dtype)
        nonlinear = posterior == "nonlinear"
        self.cell = GRU(k + self.network.out_dim, hidden, key=third, dtype=dtype) if nonlinear else None
        self.head = GaussianHead(
            hidden if nonlinear else self.network.out_dim,
            max(hidden, 16),
            k,
            covariance,
            key=second,
            initial_variance=initial_variance,
            dtype=dtype,
        )
        own = posterior in ("linear", "convolutional") and not share_transition
        self.A_q = 0.5 * prior.A if own else None
        self.posterior, self.shared = posterior, share_transition

    @property
    def latent_dim(self) -> int:
        return self.prior.latent_dim

    def features(self, batch: Sequences) -> Float[Array, "n t u"]:
        """The vectors u_t of all frames."""
        parts = []
        for name, m in sorted(batch.modalities.items()):
            n, t, *frame = m.values.shape
            parts.append(self.encoders[name](m.zero_filled().reshape(n * t, *frame)).reshape(n, t, -1))
        return self.network(jnp.concatenate(parts, -1), exists(batch))

    def posterior_chain(self, batch: Sequences) -> GaussianChain:
        """q as a chain for each sequence; not for the nonlinear posterior."""
        mean, cov = self.head(self.features(batch))
        if self.posterior == "mean-field":
            A = jnp.zeros_like(self.prior.A)
        else:
            A = self.prior.A if self.A_q is None else self.A_q
        n, t, k = mean.shape
        return GaussianChain(mean[:, 0], cov[:, 0], jnp.broadcast_to(A, (n, t - 1, k, k)), mean[:, 1:], cov[:, 1:])

    def bound(self, batch: Sequences, key: PRNGKeyArray, hidden: Bool[Array, "n t"] | None = None) -> Bound:
        """The ELBO with one sample of q."""
        seen = zeroed(batch, hidden)
        prior = self.prior.chain(batch.time)
        if self.posterior == "nonlinear":
            latents, mean, cov = self._unrolled(self.features(seen), key)
            # given z_{t-1}, the divergence of a step is exact
            at = time_first(prior)
            z = jnp.moveaxis(latents, 1, 0)
            expected = jnp.concatenate([jnp.broadcast_to(at.m1[None], z[:1].shape), mv(at.A, z[:-1]) + at.b])
            Q = jnp.concatenate([at.Q1[None], at.Q])
            kl = jnp.moveaxis(conditional_kl(jnp.moveaxis(mean, 1, 0) - expected, jnp.moveaxis(cov, 1, 0), Q), 0, 1)
        else:
            q = self.posterior_chain(seen)
            latents, kl = sample_prior(key, q, batch.time)[0], chain_kl(q, prior)
        return Bound(reconstruction(self.emissions, latents, batch), over_time(kl, batch))

    def _unrolled(self, u: Float[Array, "n t u"], key: PRNGKeyArray, *, alike: bool = False):
        """A trajectory drawn from the nonlinear q, with the means and covariances of its steps.

        With `alike` the noise is the same for all sequences and drawn for each frame by itself: a trajectory then
        depends neither on the other sequences nor on how many frames there are.
        """
        assert self.cell is not None
        n, t, _ = u.shape
        k, cell = self.latent_dim, self.cell
        if alike:
            each = jax.vmap(lambda frame: jax.random.normal(jax.random.fold_in(key, frame), (1, k), u.dtype))
            noise = jnp.broadcast_to(each(jnp.arange(t, dtype=jnp.uint32)), (t, n, k))
        else:
            noise = jax.random.normal(key, (t, n, k), u.dtype)

        def step(carry, inputs):
            state, z = carry
            u, eps = inputs
            state = cell.step(state, cell.inputs(jnp.concatenate([z, u], -1)))
            mean, cov = (x[:, 0] for x in self.head(state[:, None]))
            z = mean + mv(jnp.linalg.cholesky(cov), eps)
            return (state, z), (z, mean, cov)

        start = cell.start(n), jnp.zeros((n, k), u.dtype)
        _, out = lax.scan(step, start, (jnp.moveaxis(u, 1, 0), noise))
        return tuple(jnp.moveaxis(x, 0, 1) for x in out)

    def smooth(self, batch: Sequences) -> Marginals:
        """Means and covariances of q; for the nonlinear posterior over 25 samples, always with the same noise."""
        if self.posterior != "nonlinear":
            q = time_first(self.posterior_chain(batch))
            mean, cov = prior_means(q.m1, q.A, q.b), prior_covariances(q.Q1, q.A, q.Q)
            return Marginals(jnp.moveaxis(mean, 0, 1), jnp.moveaxis(cov, 0, 1))
        u = self.features(batch)
        keys = jax.random.split(jax.random.key(0), EVALUATION_SAMPLES)
        _, means, covs = jax.vmap(lambda key: self._unrolled(u, key, alike=True))(keys)
        mean = means.mean(0)
        apart = means - mean[None]
        return Marginals(mean, covs.mean(0) + jnp.einsum("sntk,sntl->ntkl", apart, apart) / EVALUATION_SAMPLES)

    def sample_posterior(self, key: PRNGKeyArray, batch: Sequences, samples: int) -> Float[Array, "s n t k"]:
        """Trajectories from q."""
        if self.posterior != "nonlinear":
            return sample_prior(key, self.posterior_chain(batch), batch.time, samples)
        u = self.features(batch)
        return jax.vmap(lambda key: self._unrolled(u, key)[0])(jax.random.split(key, samples))

    def forecast(
        self, batch: Sequences, steps: int, controls: None = None, samples: int = 0, key: PRNGKeyArray | None = None
    ) -> Forecast:
        """Follow the prior from the marginals of the last frames, where smoothed and filtered marginals agree."""
        del controls
        return forecast_from(self.smooth(batch), batch, self.prior.chain(steps + 1), steps, samples, key)

    def sample(self, key: PRNGKeyArray, length: int, count: int) -> Float[Array, "s t k"]:
        """Trajectories from the prior."""
        return sample_prior(key, self.prior.chain(length), length, count)

    def project(self) -> "DKFModel":
        """The nearest model with stable chains."""
        model = eqx.tree_at(lambda m: m.prior, self, self.prior.project())
        if self.A_q is None:
            return model
        return eqx.tree_at(lambda m: m.A_q, model, project_singular_values(self.A_q, LIMIT))


class DKF(GenerativeEstimator):
    """Deep Kalman filter: a linear Gaussian prior chain, a decoder, and a network that gives the posterior.

    The posterior looks at all frames at once: there is no filter.
    """

    model_type = DKFModel
    title = "DKF"

    posterior: PosteriorKind = setting(
        "linear",
        "'mean-field' (independent frames), 'linear' (a chain with a matrix of its own), 'nonlinear' (a recurrent "
        "network over samples), all on a bidirectional recurrent network over frames; or 'convolutional' (as 'linear', "
        "on convolutions over time).",
    )
    hidden_dim: int | None = setting(
        None, "Units of the recurrent networks, in each direction. None: twice the latent dimensions.", least=1
    )
    covariance: Kind = setting("diagonal", "Covariances of the posterior's steps: 'diagonal' or 'cholesky' (full).")
    share_transition: bool = setting(
        False, "Whether the posteriors 'linear' and 'convolutional' use the matrix A of the prior as theirs."
    )
    initial_variance: float = setting(0.1, "Initial variance of the posterior's steps.", above=0)

    def build(self, info: DataInfo, data: Sequences | None, seed: int) -> DKFModel:
        count, k = len(info.frame_shapes), int(self.latent_dim)
        first, *keys = keys_for(seed, 1 + 2 * count)
        return DKFModel(
            make_chain_prior(k, seed),
            build_encoders(self.encoder, info.frame_shapes, data, keys[:count]),
            self.build_emissions(info, data, keys[count:], k),
            self.posterior,
            hidden_dim=None if self.hidden_dim is None else int(self.hidden_dim),
            covariance=self.covariance,
            share_transition=bool(self.share_transition),
            initial_variance=float(self.initial_variance),
            key=first,
        )

    def _form(self) -> str:
        return f", {self.posterior} posterior{super()._form()}"
