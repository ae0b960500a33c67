"""The examples run as they stand."""

from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.slow
@pytest.mark.parametrize("path", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_example(path, run_python, tmp_path):
    figure = tmp_path / "figure.png"
    result = run_python(str(path), str(figure), quick=True)
    assert result.returncode == 0, result.stderr
    assert figure.exists() == ("savefig" in path.read_text(encoding="utf8"))
