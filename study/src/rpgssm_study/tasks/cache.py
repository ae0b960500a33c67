"""A cache of made tasks on disk.

One `.npz` file (no pickle) per task, named by a key of everything that went into it: name, seed, sizes, background,
fingerprint of the source files, version of the generator. A file is written beside its place and moved there, so that
a reader never sees half of one; a file that cannot be read, or that is not what its name says, is made again.
"""

import contextlib
import hashlib
import json
import os
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from .recipe import Made
from .task import Split

FORMAT = 1


def cache_directory() -> Path:
    """`RPGSSM_CACHE`, or the platform's folder for caches."""
    if chosen := os.environ.get("RPGSSM_CACHE"):
        return Path(chosen).expanduser()
    if sys.platform == "win32":
        return Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local") / "rpgssm" / "cache"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches" / "rpgssm"
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rpgssm"


def cache_path(key: dict[str, Any]) -> Path:
    digest = hashlib.sha256(_canonical(key).encode()).hexdigest()[:16]
    return cache_directory() / "tasks" / f"{key['name']}-seed{key['seed']}-{digest}.npz"


def load(key: dict[str, Any]) -> Made | None:
    """Read what is stored under a key; None if there is nothing, or nothing that can be trusted."""
    path = cache_path(key)
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            about = json.loads(str(file["about"]))
            if about.pop("key") != json.loads(json.dumps(key)):
                return None
            splits: dict[str, Split] = {}
            parameters = {}
            parts: dict[str, dict[str, dict[str, np.ndarray]]] = {}
            for name in file.files:
                match name.split("/"):
                    case ["parameters", which]:
                        parameters[which] = file[name]
                    case [split, kind, which]:
                        parts.setdefault(split, {}).setdefault(kind, {})[which] = file[name]
            for split in about.pop("splits"):
                p = parts[split]
                splits[split] = Split(p["observations"]["x"], p.get("states", {}), p.get("targets", {}))
    except (FileNotFoundError, zipfile.BadZipFile, ValueError, KeyError, EOFError, OSError):
        return None
    return Made(splits, parameters=parameters, secondary=tuple(about.pop("secondary")), **about)


def store(key: dict[str, Any], made: Made) -> None:
    """Write a made task. Where that fails (a full or read-only disk), it is made again the next time."""
    arrays = {f"parameters/{name}": value for name, value in made.parameters.items()}
    for split, content in made.splits.items():
        arrays[f"{split}/observations/x"] = content.observations
        arrays |= {f"{split}/states/{name}": value for name, value in content.states.items()}
        arrays |= {f"{split}/targets/{name}": value for name, value in content.targets.items()}
    about = {
        "key": key,
        "splits": list(made.splits),
        "dt": made.dt,
        "scale": made.scale,
        "offset": made.offset,
        "secondary": list(made.secondary),
        "sources": made.sources,
    }
    path = cache_path(key)
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".tmp")
        try:
            with os.fdopen(handle, "wb") as file:
                np.savez(file, about=np.array(json.dumps(about)), **arrays)  # pyright: ignore[reportArgumentType]
            Path(temporary).replace(path)
        except BaseException:
            Path(temporary).unlink(missing_ok=True)
            raise


def _canonical(key: dict[str, Any]) -> str:
    return json.dumps({"format": FORMAT, **key}, sort_keys=True)
