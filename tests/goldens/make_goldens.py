"""Write the goldens: what today's code gives, for later code to be compared with.

    python -m tests.goldens.make_goldens programs folders losses tables   # from the top of the repository
    python -m tests.goldens.make_goldens losses --only alike
    python -m tests.goldens.make_goldens --text FOLDER                     # the programs as text, to be compared

Never run by tests. Renew a golden only for a difference that is meant and named (README.md beside this file).
"""

import argparse
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parents[1] / "src"))
# As the tests compile (conftest.py): other machine code rounds otherwise, which some of these models amplify to 3e-4.
os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_cpu_use_fusion_emitters=false"

import jax  # noqa: E402
import numpy as np  # noqa: E402

from . import capture, cases, study  # noqa: E402
from .capture import as_in_use  # noqa: E402

KINDS = ("programs", "folders", "losses", "tables")


def programs(only: list[str]) -> None:
    path = HERE / "programs.json"
    stored = read(path) or {"jax": jax.__version__, "cases": {}}
    if stored["jax"] != jax.__version__:
        if only:
            raise SystemExit(f"the stored programs are of JAX {stored['jax']}, this is {jax.__version__}: renew all")
        stored = {"jax": jax.__version__, "cases": {}}
    for name in chosen(cases.CASES, only):
        case = cases.CASES[name]
        stored["cases"][name] = [capture.described(s) for s in capture.stages(case.run, case.stages)]
        print(f"programs: {name}", flush=True)
    stored["cases"] = {name: stored["cases"][name] for name in cases.CASES if name in stored["cases"]}
    path.write_text(compact(stored), encoding="utf-8")


def folders(only: list[str]) -> None:
    import shutil

    for name in chosen(cases.FOLDERS, only):
        folder = HERE / "folders" / name
        shutil.rmtree(folder, ignore_errors=True)
        with as_in_use():
            cases.save(name, folder / "model")
            found = cases.answers(name, cases.load(name, folder / "model"))
        np.savez_compressed(folder / "answers.npz", **found)  # pyright: ignore[reportArgumentType]
        print(f"folders: {name}: {', '.join(found)}", flush=True)


def losses(only: list[str]) -> None:
    path = HERE / "losses.json"
    stored = read(path) or {}
    for name in chosen(cases.LOSSES, only):
        with tempfile.TemporaryDirectory() as folder, as_in_use():
            stored[name] = cases.LOSSES[name](Path(folder))
        print(f"losses: {name}", flush=True)
    stored = {name: stored[name] for name in cases.LOSSES if name in stored}
    path.write_text(compact(stored), encoding="utf-8")


def tables(only: list[str]) -> None:
    del only  # they come together
    folder = HERE / "tables"
    folder.mkdir(exist_ok=True)
    for old in folder.iterdir():
        old.unlink()
    for name, content in study.tables().items():
        (folder / name).write_bytes(content)
        print(f"tables: {name}", flush=True)


def texts(folder: Path, only: list[str]) -> None:
    """Write the normalised programs themselves."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in chosen(cases.CASES, only):
        case = cases.CASES[name]
        for i, found in enumerate(capture.stages(case.run, case.stages)):
            (folder / f"{name}-{i}-advance.mlir").write_text(found.advance.text)
            if found.evaluate is not None:
                (folder / f"{name}-{i}-evaluate.mlir").write_text(found.evaluate.text)


def chosen(known: Any, only: list[str]) -> list[str]:
    return [name for name in known if not only or name in only]


def read(path: Path) -> Any:
    return json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None


def compact(value: Any, depth: int = 0) -> str:
    """JSON with a line for each entry down to lists of numbers, so that a change shows as a few lines."""
    pad = " " * (depth + 1)
    if isinstance(value, dict):
        inside = [f"{pad}{json.dumps(k)}: {compact(v, depth + 1).strip()}" for k, v in value.items()]
        return "{\n" + ",\n".join(inside) + "\n" + " " * depth + "}" + "\n" * (depth == 0)
    if isinstance(value, list) and value and isinstance(value[0], dict | list):
        inside = [pad + compact(v, depth + 1) for v in value]
        return "[\n" + ",\n".join(inside) + "\n" + " " * depth + "]"
    return json.dumps(value)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", choices=[*KINDS, []], help="what to write")
    parser.add_argument("--only", nargs="*", default=[], help="names of cases; all by default")
    parser.add_argument("--text", type=Path, help="write the programs as text into this folder")
    options = parser.parse_args()
    if options.text is not None:
        texts(options.text, options.only)
    for kind in options.kinds:
        {"programs": programs, "folders": folders, "losses": losses, "tables": tables}[kind](options.only)


if __name__ == "__main__":
    main()
