"""The methods that are compared: the estimator of each, what is fixed in it, and what it is called in figures."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["recognition", "generative", "contrastive"]


@dataclass(frozen=True)
class Method:
    """A method under comparison.

    `published` says whether the paper compares with it; `covariance` names the setting for the form of the recognition
    covariance, if there is one. `resumable` methods keep checkpoints. `decoder` is "own" for those that reconstruct
    frames themselves.
    """

    label: str
    estimator: str
    kind: Kind
    colour: str
    fixed: Mapping[str, Any] = field(default_factory=dict)
    covariance: str | None = None
    masked: bool = True
    published: bool = True
    resumable: bool = True
    decoder: Literal["own", "auxiliary"] = "own"


def _dkf(label: str, posterior: str, colour: str) -> Method:
    return Method(label, "DKF", "generative", colour, {"posterior": posterior}, covariance="covariance")


METHODS: dict[str, Method] = {
    "rpgssm": Method(
        "RP-GSSM", "RPGSSM", "recognition", "#c1272d", covariance="precision", masked=False, decoder="auxiliary"
    ),
    "svae": Method("SVAE", "SVAE", "generative", "#1f4e79", covariance="precision"),
    "dkf-mf": _dkf("DKF-MF", "mean-field", "#2e75b6"),
    "dkf-l": _dkf("DKF-L", "linear", "#5b9bd5"),
    "dkf-nl": _dkf("DKF-NL", "nonlinear", "#8db9e2"),
    "dkf-cl": _dkf("DKF-CL", "convolutional", "#b4d2ee"),
    "kvae": Method("KVAE", "KVAE", "generative", "#3d8b8b"),
    "cpc": Method("CPC", "CPC", "contrastive", "#e08e0b", decoder="auxiliary"),
    "lgssm": Method(
        "LGSSM-EM", "LinearGaussianSSM", "generative", "#7f7f7f", masked=False, published=False, resumable=False
    ),
    "rkn": Method("RKN", "RKN", "generative", "#7b5ea7", published=False),
    "dcl": Method("DCL", "DCL", "contrastive", "#b8860b", masked=False, published=False, decoder="auxiliary"),
}


def method_names() -> tuple[str, ...]:
    return tuple(METHODS)
