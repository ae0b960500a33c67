"""Imports go one way: no layer knows of the layers above it (the table is explained in CONTRIBUTING.md)."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).resolve().parent.parent / "src" / "rpgssm"

# From the lowest to the highest; each may import itself and everything before it. The package itself (`__version__`)
# comes after core, so core stands alone.
ORDER = (
    *("core", "__init__", "settings", "data", "datasets", "model", "nn", "training", "readout", "estimator", "methods"),
    *("evaluation", "plot", "report", "demo", "cli"),
)
ALLOWED: dict[str, set[str]] = {layer: set(ORDER[: i + 1]) for i, layer in enumerate(ORDER)}
ALLOWED["__init__"] = {"__init__", *ORDER}  # its imports are lazy: see test_imports.py


def layer_of(path: Path, package: Path) -> str:
    """The first part of a file's path inside the package: `core/_filter.py` and `core.py` are both `core`."""
    return Path(path.relative_to(package).parts[0]).stem


def imported_layers(path: Path, package: Path) -> dict[str, int]:
    """The layers of `package` that a file imports, anywhere in it, each with the first line that does."""
    # The package that relative imports start from: that of a module or of an __init__.py is its folder.
    here = (package.name, *path.relative_to(package).parent.parts)
    found: dict[str, int] = {}

    def add(module: tuple[str, ...], line: int) -> None:
        if module[0] == package.name:
            layer = module[1] if len(module) > 1 else "__init__"
            is_module = (package / layer).is_dir() or (package / f"{layer}.py").is_file()
            found.setdefault(layer if is_module else "__init__", line)

    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            for alias in node.names:
                add(tuple(alias.name.split(".")), node.lineno)
        elif isinstance(node, ast.ImportFrom):
            base = here[: len(here) - node.level + 1] if node.level else ()
            base += tuple(node.module.split(".")) if node.module else ()
            for alias in node.names:  # `from rpgssm import core` imports a layer, `from rpgssm.core import x` its name
                add((*base, alias.name), node.lineno)
    return found


def violations(package: Path) -> list[str]:
    complaints = []
    for path in sorted(package.rglob("*.py")):
        layer, name = layer_of(path, package), path.relative_to(package.parent)
        if layer not in ALLOWED:
            complaints.append(f"{name}: '{layer}' is not a known layer: give it a place in tests/test_layers.py")
            continue
        for target, line in imported_layers(path, package).items():
            if target not in ALLOWED[layer]:
                complaints.append(f"{name}:{line}: '{layer}' must not import '{target}'")
    return complaints


def test_no_layer_imports_a_higher_one():
    assert not violations(SOURCE)


@pytest.mark.parametrize(
    ("path", "code", "target"),
    [
        ("core/chain.py", "import rpgssm.nn", "nn"),
        ("core/chain.py", "import numpy, rpgssm.training.fit as fit", "training"),
        ("core/chain.py", "from rpgssm import nn", "nn"),
        ("core/chain.py", "from rpgssm.nn import Prior", "nn"),
        ("core/chain.py", "from ..nn import Prior", "nn"),
        ("core/chain.py", "from .. import nn", "nn"),
        ("core/chain.py", "import rpgssm", "__init__"),
        ("core/chain.py", "from rpgssm import __version__", "__init__"),
        ("core/deep/chain.py", "from ...nn.prior import Prior", "nn"),
        ("core/__init__.py", "def f():\n    from ..nn import Prior", "nn"),
        ("nn/prior.py", "from rpgssm.training import fit", "training"),
        ("training/fit.py", "from rpgssm.estimator import Estimator", "estimator"),
        ("estimator.py", "from .cli import main", "cli"),
    ],
)
def test_wrong_imports_are_found(tmp_path, path, code, target):
    package = make_package(tmp_path, path, code)
    (complaint,) = violations(package)
    assert complaint.endswith(f"'{Path(path).parts[0].removesuffix('.py')}' must not import '{target}'")


@pytest.mark.parametrize(
    ("path", "code"),
    [
        ("core/chain.py", "import numpy.core\nfrom . import gaussian\nfrom .gaussian import Gaussian"),
        ("core/deep/chain.py", "from ..gaussian import Gaussian\nfrom rpgssm.core import gaussian"),
        ("nn/prior.py", "from rpgssm import __version__, core"),
        ("cli.py", "from rpgssm.datasets import linear\nfrom . import estimator"),
        ("training/fit.py", "from rpgssm.core import filter\nfrom ..nn import Head"),
    ],
)
def test_right_imports_pass(tmp_path, path, code):
    assert not violations(make_package(tmp_path, path, code))


def test_a_new_layer_needs_a_place(tmp_path):
    (complaint,) = violations(make_package(tmp_path, "misc/helpers.py", ""))
    assert "'misc' is not a known layer" in complaint


def make_package(folder: Path, path: str, code: str) -> Path:
    """A package with one empty module per layer, and one file with `code` in it."""
    package = folder / "rpgssm"
    for layer in ("core", "nn", "training", "datasets"):
        (package / layer).mkdir(parents=True)
        (package / layer / "__init__.py").touch()
    for name in ("__init__", "estimator", "cli"):
        (package / f"{name}.py").touch()
    file = package / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(code, encoding="utf-8")
    return package
