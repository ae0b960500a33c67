"""Exact Gaussian-chain inference and the free energy: pure functions on arrays.

Nothing here knows about networks, training or files. Shapes are batch first, `(batch, time, latent)`.
"""

from .canonical import CanonicalForm as CanonicalForm
from .canonical import canonical_form as canonical_form
from .canonical import project_singular_values as project_singular_values
from .canonical import spectral_radius as spectral_radius
from .checks import check as check
from .checks import check_chain as check_chain
from .checks import check_potentials as check_potentials
from .forecast import Forecast as Forecast
from .forecast import forecast as forecast
from .free_energy import FreeEnergyInfo as FreeEnergyInfo
from .free_energy import free_energy as free_energy
from .memory import predict_memory as predict_memory
from .online import OnlineOutput as OnlineOutput
from .online import OnlineState as OnlineState
from .online import online_start as online_start
from .online import online_step as online_step
from .sampling import as_general as as_general
from .sampling import sample_posterior as sample_posterior
from .sampling import sample_prior as sample_prior
from .smoother import filter as filter
from .smoother import smooth as smooth
from .types import Chain as Chain
from .types import GaussianChain as GaussianChain
from .types import Moments as Moments
from .types import Natural as Natural
from .types import Posterior as Posterior
from .types import Potentials as Potentials
from .types import Precision as Precision
from .types import StationaryChain as StationaryChain
