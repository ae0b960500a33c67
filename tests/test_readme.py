"""The examples in the README and in docs/core.md run as they stand, and print what is printed there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent


def blocks(path: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", (ROOT / path).read_text(encoding="utf8"), re.DOTALL)


def test_the_example_of_the_readme(run_python, tmp_path):
    (code,), (shown,) = (
        blocks("README.md", "python"),
        re.findall(r"```\n(\{.*?\})\n```", (ROOT / "README.md").read_text()),
    )
    code = code.replace('"my-model"', repr(str(tmp_path / "model")))
    shapes = "\nassert latents.shape == (200, 100, 32)\nassert ahead.cov.shape == (200, 50, 32, 32)\n"
    result = run_python("-c", code + shapes)
    assert result.returncode == 0, result.stderr
    assert ast.literal_eval(result.stdout) == pytest.approx(ast.literal_eval(shown), abs=0.01)


def test_the_example_of_the_core(run_python):
    (code,) = blocks("docs/core.md", "python")
    shapes = "\nassert posterior.mean.shape == (32, 100, 4)\nassert ahead.mean.shape == (32, 20, 4)\n"
    finite = "assert jnp.isfinite(loss)\nassert jnp.all(jnp.isfinite(gradient.A))\n"
    result = run_python("-c", code + shapes + finite, quick=True)
    assert result.returncode == 0, result.stderr


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text(encoding="utf8").split()) <= 800
