"""What can be asked of a method is what its model has an answer to; nothing else is there."""

import ast
from pathlib import Path

import pytest

import rpgssm
from rpgssm.methods import all_methods
from rpgssm.model import ABILITIES, Model, abilities

SOURCE = Path(rpgssm.__file__).parent

QUESTIONS = {
    "filter": "filter",
    "forecast": "forecast",
    "sample": "sample",
    "sample_posterior": "sample_posterior",
    "online": "online_step",
}
HAS = {
    "RPGSSM": {"filter", "forecast", "sample", "sample_posterior", "online"},
    "Stack": {"filter", "forecast", "sample", "sample_posterior", "online"},
    "SVAE": {"filter", "forecast", "sample", "sample_posterior", "online"},
    "LinearGaussianSSM": {"filter", "forecast", "sample", "sample_posterior", "online"},
    "DKF": {"forecast", "sample", "sample_posterior"},
    "KVAE": {"filter", "forecast", "sample_posterior"},
    "RKN": {"filter", "forecast"},
    "CPC": {"filter"},
    "DCL": {"filter", "forecast"},
}


@pytest.mark.parametrize("cls", all_methods().values(), ids=lambda cls: cls.__name__)
def test_a_method_has_what_its_model_answers(cls):
    assert {name for name in QUESTIONS if hasattr(cls(), name)} == HAS[cls.__name__]
    for name, question in QUESTIONS.items():
        assert hasattr(cls(), name) == (question in abilities(cls.model_type)) == hasattr(cls.model_type, question)
        if not hasattr(cls(), name):
            with pytest.raises(AttributeError, match=f"'{cls.__name__}' has no attribute '{name}'"):
                getattr(cls(), name)
    for name in ("fit", "transform", "smooth", "score", "save", "fit_decoder", "reconstruct", "decode", "summary"):
        assert hasattr(cls(), name)


@pytest.mark.parametrize("cls", all_methods().values(), ids=lambda cls: cls.__name__)
def test_models_define_what_they_answer_and_no_stubs(cls):
    assert issubclass(cls.model_type, Model)
    assert "smooth" in abilities(cls.model_type)
    for name in abilities(cls.model_type):
        assert not getattr(getattr(cls.model_type, name), "__isabstractmethod__", False)


def test_an_ability_is_no_more_than_a_method():
    assert abilities(Model) == frozenset()
    assert abilities(type("Toy", (Model,), {"smooth": lambda self, batch: None})) == {"smooth"}
    assert set(QUESTIONS.values()) | {"smooth"} <= set(ABILITIES)


def test_nothing_in_the_library_is_a_stub():
    """No function only raises, and nothing is said not to be implemented."""
    for path in sorted(SOURCE.rglob("*.py")):
        code = path.read_text(encoding="utf-8")
        assert "NotImplemented" not in code, path
        for node in ast.walk(ast.parse(code)):
            if isinstance(node, ast.FunctionDef):
                body = node.body[1:] if ast.get_docstring(node) else node.body
                assert not (len(body) == 1 and isinstance(body[0], ast.Raise)), f"{path}: {node.name}"


def test_one_module_asks_what_models_can_do():
    asking = {path.name for path in SOURCE.rglob("*.py") if "abilities(" in path.read_text(encoding="utf-8")}
    assert asking - {"sections.py"} == {"model.py", "_estimator.py"}  # a report asks whether frames can be drawn
