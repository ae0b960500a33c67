"""A method of another package: one file and an entry point, and it can do all that methods here can do."""

import os
import subprocess
import sys
import textwrap

import numpy as np
import pytest

import rpgssm

PROJECT = """
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "toy-method"
version = "0.1"

[project.entry-points."rpgssm.methods"]
SlowFeatures = "toy_method:SlowFeatures"

[tool.hatch.build.targets.wheel]
packages = ["toy_method"]
"""

METHOD = '''
"""Slow features: linear functions of a frame that change little from frame to frame, and differ from each other."""

from dataclasses import dataclass

import jax.numpy as jnp
import jax.random as jr
from jaxtyping import Array, Float

from rpgssm.estimator import GradientEstimator
from rpgssm.model import Marginals, Model
from rpgssm.settings import setting


class SlowFeaturesModel(Model):
    weight: Float[Array, "d k"]

    @property
    def latent_dim(self):
        return self.weight.shape[1]

    def smooth(self, batch):
        return Marginals(batch.modalities["observations"].frames() @ self.weight)

    filter = smooth


@dataclass(frozen=True)
class Slowness:
    pressure: float

    def __call__(self, model, batch, key=None):
        z = model.smooth(batch).mean
        slow = jnp.mean((z[:, 1:] - z[:, :-1]) ** 2)
        flat = z.reshape(-1, z.shape[-1])
        spread = jnp.mean((flat.T @ flat / len(flat) - jnp.eye(z.shape[-1], dtype=z.dtype)) ** 2)
        return slow + self.pressure * spread, {"slow": slow, "spread": spread}


class SlowFeatures(GradientEstimator):
    """Slow feature analysis by gradients."""

    title = "Slow features"
    command_name = "slow"
    model_type = SlowFeaturesModel

    pressure: float = setting(10.0, "Weight of the features' difference.", above=0)

    def build(self, info, data, seed):
        (size,) = info.frame_shapes["observations"]
        return SlowFeaturesModel(0.1 * jr.normal(jr.key(seed), (size, int(self.latent_dim))))

    def objective(self):
        return Slowness(float(self.pressure))

    def _score(self, data):
        return -float(self.objective()(self.model_, data)[0])
'''

USE = """
import sys
import numpy as np
import rpgssm

x = np.load(sys.argv[1])
model = rpgssm.SlowFeatures(2, pressure=5.0, max_steps=30, verbose=False).fit(x)
latents = model.transform(x)
assert latents.shape == (12, 20, 2)
assert not hasattr(model, "forecast")
model.save(sys.argv[2])
loaded = rpgssm.load(sys.argv[2])
assert type(loaded) is rpgssm.SlowFeatures and loaded.pressure == 5.0
np.testing.assert_array_equal(loaded.transform(x), latents)
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder that the toy distribution is installed into, and data."""
    folder = tmp_path_factory.mktemp("toy")
    package = folder / "source" / "toy_method"
    package.mkdir(parents=True)
    (folder / "source" / "pyproject.toml").write_text(PROJECT)
    (package / "__init__.py").write_text(METHOD)
    options = ["--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check"]
    command = [
        sys.executable,
        "-m",
        "pip",
        "install",
        *options,
        "--target",
        str(folder / "lib"),
        str(folder / "source"),
    ]
    subprocess.run(command, check=True, capture_output=True, text=True)
    z = np.cumsum(np.random.default_rng(0).normal(size=(12, 20, 2)), 1)
    np.save(folder / "x.npy", (z @ np.random.default_rng(1).normal(size=(2, 4))).astype(np.float32))
    return folder


@pytest.fixture
def run_toy(installed, run_python, monkeypatch):
    """Run a fresh Python in which the toy distribution is installed."""
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(installed / "lib"), os.environ["PYTHONPATH"]]))

    def run(*arguments):
        done = run_python(*arguments, quick=True)
        assert done.returncode == 0, done.stderr
        return done.stdout

    return run


def test_it_is_fitted_saved_and_loaded(installed, run_toy, tmp_path):
    run_toy("-c", textwrap.dedent(USE), str(installed / "x.npy"), str(tmp_path / "model"))


def test_the_command_line_knows_it(installed, run_toy, tmp_path):
    shown = run_toy("-m", "rpgssm.cli", "fit", "--model", "slow", "--help")
    assert "--pressure FLOAT" in shown
    data, run = str(installed / "x.npy"), str(tmp_path / "run")
    run_toy(
        *["-m", "rpgssm.cli", "fit", data, "-o", run, "--model", "slow", "--latent-dim", "2", "--pressure", "5"],
        *["--max-steps", "30", "--quiet"],
    )
    run_toy("-m", "rpgssm.cli", "transform", run, data, "-o", str(tmp_path / "latents.npz"))
    with np.load(tmp_path / "latents.npz") as latents:
        assert latents["mean"].shape == (12, 20, 2)
    assert "Slow features with 2 latent dimensions" in run_toy("-m", "rpgssm.cli", "info", run)


def test_without_it_nothing_is_known_of_it():
    assert not hasattr(rpgssm, "SlowFeatures")
