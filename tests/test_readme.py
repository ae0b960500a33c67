"""The examples in the README run as they stand."""

import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_estimator_example(run_python, tmp_path):
    code, _ = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf8"), re.DOTALL)
    code = code.replace('"my-model"', repr(str(tmp_path / "model")))
    shapes = "\nassert latents.shape == (40, 50, 8)\nassert ahead.cov.shape == (40, 25, 8, 8)\n"
    result = run_python("-c", code + shapes, quick=True)
    assert result.returncode == 0, result.stderr


def test_core_example(run_python):
    _, code = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf8"), re.DOTALL)
    shapes = "\nassert posterior.mean.shape == (32, 100, 4)\nassert ahead.mean.shape == (32, 20, 4)\n"
    finite = "assert jnp.isfinite(loss)\nassert jnp.all(jnp.isfinite(gradient.A))\n"
    result = run_python("-c", code + shapes + finite, quick=True)
    assert result.returncode == 0, result.stderr
