"""The command line and the estimator have the same defaults."""

from dataclasses import asdict

from rpgssm.commands.config import Model, Training
from rpgssm.estimator import RPGSSM


def test_defaults_are_those_of_the_estimator():
    settings = asdict(Model()) | asdict(Training())
    usual = RPGSSM().get_params()
    assert settings == {name: usual[name] for name in settings}
    assert set(usual) - set(settings) == {"posterior_gradient", "checkpoint_dir", "verbose"}
