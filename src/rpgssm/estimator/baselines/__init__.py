"""Estimators of the methods that the RP-GSSM is compared with."""

from .cpc import CPC as CPC
from .dcl import DCL as DCL
from .dkf import DKF as DKF
from .kvae import KVAE as KVAE
from .linear_gaussian import LinearGaussianSSM as LinearGaussianSSM
from .rkn import RKN as RKN
from .svae import SVAE as SVAE
