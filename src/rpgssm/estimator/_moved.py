"""Settings of 0.1 that have another name or place now."""

from collections.abc import Iterable

from rpgssm.settings import declared

_STACK = "a second training is a second stage: Stack([RPGSSM(...), RPGSSM(encoder=WideLayer(256), ...)])"
_PRECISION = "it is a setting of the precision: precision=Cholesky(data_dependent=..., start=...) or Diagonal(...)"
_PRIOR = "it is a setting of the prior: prior=Prior(start=..., scale=...), Stationary(...), Free(...)"
_OPTIMIZER = "it is a setting of the optimizer: optimizer=Adam(prior_rate=..., schedule=..., clip_norm=...)"
_STOPPING = "it is a setting of the stopping rule: stopping=Stopping(validate_every=..., patience=...)"

MOVED = {
    "widen": _STACK,
    "widen_steps": _STACK,
    "widen_settings": _STACK,
    "widen_components": _STACK,
    "mirror": "pass augment=RandomFlips()",
    "batches": "pass sampler=SimilarWindows() or RandomWindows()",
    "prior_learning_rate": _OPTIMIZER,
    "schedule": _OPTIMIZER,
    "clip_norm": _OPTIMIZER,
    "validate_every": _STOPPING,
    "patience": _STOPPING,
    "data_dependent": _PRECISION,
    "initial_precision": _PRECISION,
    "initial_transition": _PRIOR,
    "initial_scale": _PRIOR,
    "mixture_times": "it is a setting of the marginal: marginal=PooledMarginal(8)",
}


def refuse_moved(cls: type, given: Iterable[str]) -> None:
    """Raise TypeError for the first name that was a setting in 0.1, and say where it went."""
    for name in given:
        if name in MOVED and name not in declared(cls):
            where = "'Names that changed' in CHANGELOG.md lists all"
            raise TypeError(f"{cls.__name__} has no setting {name!r} since 0.2: {MOVED[name]}; {where}")
