"""What is shipped: the library, and nothing of the study."""

import ast
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
OF_THE_STUDY = {"tasks", "experiments", "protocols", "recipes", "queues", "claims", "bench", "speed", "rpgssm_study"}


def test_no_file_of_the_library_imports_the_study():
    for path in sorted((ROOT / "src").rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            assert not any(name.split(".")[0] == "rpgssm_study" for name in names), path


def test_wheel_and_source_distribution_hold_nothing_of_the_study(tmp_path):
    pytest.importorskip("hatchling")
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=120)
    (wheel,), (source,) = tmp_path.glob("*.whl"), tmp_path.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as file:
        shipped = [Path(name) for name in file.namelist()]
    assert {path.parts[0].split("-")[0] for path in shipped} == {"rpgssm"}
    with tarfile.open(source) as file:
        paths = [Path(*Path(name).parts[1:]) for name in file.getnames()]
    assert Path("conftest.py") in paths
    assert not any("study" in path.parts for path in paths)
    shipped += [path for path in paths if path.parts[:1] == ("src",)]
    assert Path("src/rpgssm/datasets/__init__.py") in shipped
    for path in shipped:
        assert OF_THE_STUDY.isdisjoint({*path.parts, path.stem}), path
