import os
from pathlib import Path

import pytest

from .publishers import write_cifar10, write_davis, write_markers


@pytest.fixture(autouse=True)
def own_folders(tmp_path, monkeypatch):
    """Neither the user's cache nor the user's data."""
    monkeypatch.setenv("RPGSSM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("RPGSSM_DATA", raising=False)


@pytest.fixture(scope="session")
def made_files(tmp_path_factory) -> Path:
    """A data directory with tiny files in all layouts."""
    folder = tmp_path_factory.mktemp("data")
    write_cifar10(folder)
    write_davis(folder)
    write_markers(folder)
    return folder


REAL_DATA = os.environ.get("RPGSSM_DATA")


@pytest.fixture(scope="session", params=["made", "real"])
def data(request, made_files) -> Path:
    """The tiny files, and the real ones where there are any."""
    if request.param == "made":
        return made_files
    if not REAL_DATA:
        pytest.skip("the publishers' own files are needed: set RPGSSM_DATA to a folder that has them")
    return Path(REAL_DATA)
