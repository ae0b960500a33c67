"""The command line and the estimators have the same defaults, and models are named as they should be."""

from dataclasses import asdict
from typing import get_args

import pytest

from rpgssm.commands.config import ModelName
from rpgssm.commands.methods import METHODS, fit_command, named_method
from rpgssm.estimator.loading import ESTIMATORS, estimator_class


@pytest.mark.parametrize("name", METHODS)
def test_defaults_are_those_of_the_estimator(name):
    method = METHODS[name]
    settings = asdict(method.settings()) | asdict(method.training())
    usual = estimator_class(method.estimator)().get_params()
    assert settings == {name: usual[name] for name in settings}
    assert set(usual) - set(settings) <= {"posterior_gradient", "checkpoint_dir", "verbose"}


def test_every_estimator_has_a_name():
    assert get_args(get_args(ModelName)[0]) == tuple(METHODS)
    assert [m.estimator for m in METHODS.values()] == list(ESTIMATORS)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (["fit", "x.npy", "--model", "svae"], "svae"),
        (["fit", "--model=dkf", "x.npy"], "dkf"),
        (["fit", "x.npy", "-o", "out"], "rpgssm"),
        (["fit", "x.npy", "--model", "nothing"], "rpgssm"),
        (["fit", "x.npy", "--model"], "rpgssm"),
        (["transform", "--model", "svae"], "rpgssm"),
        ([], "rpgssm"),
    ],
)
def test_the_model_is_found_before_the_settings_are_read(arguments, name):
    assert named_method(arguments) == name
    assert fit_command(name).__dataclass_fields__["model"].default == name
