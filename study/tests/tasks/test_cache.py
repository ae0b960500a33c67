import numpy as np
import pytest

from rpgssm_study.tasks import load_task
from rpgssm_study.tasks import pendulum as family
from rpgssm_study.tasks.cache import cache_directory

SMALL = {"n_train": 3, "n_validation": 2, "n_test": 2}


def stored() -> list:
    return sorted((cache_directory() / "tasks").glob("*"))


@pytest.fixture
def counted(monkeypatch) -> list[str]:
    """The requests that were made and not found."""
    calls: list[str] = []
    build = family.build

    def counting(request):
        calls.append(request.name)
        return build(request)

    monkeypatch.setattr(family, "build", counting)
    return calls


def assert_same(a, b) -> None:
    for split in ("train", "validation", "test"):
        np.testing.assert_array_equal(a.splits[split].observations, b.splits[split].observations)
        for kind in ("states", "targets"):
            ours, theirs = getattr(a.splits[split], kind), getattr(b.splits[split], kind)
            assert list(ours) == list(theirs)
            for name in ours:
                np.testing.assert_array_equal(ours[name], theirs[name])
    assert (a.dt, a.scale, a.offset, a.secondary, a.description) == (
        b.dt,
        b.scale,
        b.offset,
        b.secondary,
        b.description,
    )


@pytest.mark.parametrize("name", ["linear-small", "pendulum-vector", "tracking"])
def test_what_comes_back_is_what_was_made(name):
    made = load_task(name, **SMALL)
    (path,) = stored()
    assert path.suffix == ".npz"
    found = load_task(name, **SMALL)
    assert_same(made, found)
    assert set(found.parameters) == set(made.parameters)
    for key in made.parameters:
        np.testing.assert_array_equal(found.parameters[key], made.parameters[key])


def test_it_is_made_once(counted):
    load_task("pendulum-vector", **SMALL)
    load_task("pendulum-vector", **SMALL)
    assert len(counted) == 1
    load_task("pendulum-vector", **SMALL, seed=1)
    load_task("pendulum-vector", n_train=4, n_validation=2, n_test=2)
    assert len(counted) == 3
    load_task("pendulum-vector", **SMALL, cache=False)
    assert len(counted) == 4


def test_a_new_generator_makes_it_again(counted, monkeypatch):
    load_task("pendulum-vector", **SMALL)
    monkeypatch.setattr(family, "VERSION", 99)
    assert load_task("pendulum-vector", **SMALL).description["generator_version"] == 99
    assert len(counted) == 2


def test_other_files_make_it_again(counted, tmp_path):
    from .publishers import write_cifar10

    write_cifar10(tmp_path)
    before = load_task("cifar10-pendulum", data_dir=tmp_path, **SMALL)
    path = tmp_path / "cifar-10-batches-bin" / "data_batch_1.bin"
    records = np.fromfile(path, np.uint8)
    records[100:3000] = 0
    records.tofile(path)
    load_task("cifar10-pendulum", data_dir=tmp_path, **SMALL)
    assert len(counted) == 2
    path.write_bytes(path.read_bytes() + bytes(3073))
    after = load_task("cifar10-pendulum", data_dir=tmp_path, **SMALL)
    assert len(counted) == 3
    assert before.description["sources"] != after.description["sources"]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text", "array"])
def test_damaged_files_are_made_again(counted, damage):
    made = load_task("pendulum-vector", **SMALL)
    (path,) = stored()
    content = path.read_bytes()
    match damage:
        case "cut":
            path.write_bytes(content[: len(content) // 2])
        case "flip":
            middle = len(content) // 4
            path.write_bytes(
                content[:middle] + bytes(b ^ 255 for b in content[middle : middle + 8]) + content[middle + 8 :]
            )
        case "empty":
            path.write_bytes(b"")
        case "text":
            path.write_text("not an archive")
        case "array":
            with path.open("wb") as file:
                np.savez(file, about=np.array("{}"))
    assert_same(load_task("pendulum-vector", **SMALL), made)
    assert len(counted) == 2
    assert_same(load_task("pendulum-vector", **SMALL), made)
    assert len(counted) == 2


def test_nothing_half_written_is_left(monkeypatch):
    def fail(*_, **__):
        raise OSError("disk full")

    monkeypatch.setattr(np, "savez", fail)
    assert len(load_task("pendulum-vector", **SMALL).train) == 3
    assert stored() == []


def test_where_the_cache_is(monkeypatch, tmp_path):
    assert cache_directory() == tmp_path / "cache"
    monkeypatch.delenv("RPGSSM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    monkeypatch.setattr("sys.platform", "linux")
    assert cache_directory() == tmp_path / "xdg" / "rpgssm"
