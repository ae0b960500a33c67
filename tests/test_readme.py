"""The example in the README runs as it stands."""

import re
from pathlib import Path

README = Path(__file__).resolve().parent.parent / "README.md"


def test_example(run_python):
    (code,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf8"), re.DOTALL)
    shapes = "\nassert posterior.mean.shape == (32, 100, 4)\nassert ahead.mean.shape == (32, 20, 4)\n"
    finite = "assert jnp.isfinite(loss)\nassert jnp.all(jnp.isfinite(gradient.A))\n"
    result = run_python("-c", code + shapes + finite)
    assert result.returncode == 0, result.stderr
