"""Importing the library is cheap and leaves no trace."""

import json

import pytest

OPTIONAL = {"av", "dynamax", "h5py", "optuna", "pynwb", "ratinabox", "tensorflow_probability", "torch", "zarr"}
HEAVY = {"matplotlib", "optax", "orbax", "sklearn"}
JAX = {"jax", "equinox", "scipy"}


@pytest.mark.parametrize(
    ("module", "unwanted"),
    [
        ("rpgssm", OPTIONAL | HEAVY | JAX),
        ("rpgssm.cli", OPTIONAL | HEAVY | JAX),
        ("rpgssm.core", OPTIONAL | HEAVY),
    ],
)
def test_import_is_light(run_python, module, unwanted):
    code = f"import json, sys, {module}; print(json.dumps(sorted({{name.partition('.')[0] for name in sys.modules}})))"
    result = run_python("-c", code)
    assert result.returncode == 0, result.stderr
    assert unwanted.isdisjoint(json.loads(result.stdout))


def test_import_changes_no_jax_setting(run_python):
    code = "import jax; before = dict(jax.config.values); import rpgssm.core; assert dict(jax.config.values) == before"
    result = run_python("-W", "error", "-c", code)
    assert result.returncode == 0, result.stderr


def test_core_is_an_attribute(run_python):
    code = "import rpgssm; assert 'core' in dir(rpgssm); print(rpgssm.core.__name__)"
    result = run_python("-c", code)
    assert result.stdout.split() == ["rpgssm.core"], result.stderr


def test_unknown_attribute_is_named():
    import rpgssm

    with pytest.raises(AttributeError, match="no attribute 'cora'"):
        rpgssm.cora  # noqa: B018
