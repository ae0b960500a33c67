"""Everything that is stricter in the tests, of the library and of the study, than in use.

Shapes and dtypes in signatures are checked at every call, dtypes are never promoted silently, and both float32 and
float64 exist (so each test says which one it means). Neither of them sets any of this itself.
"""

import gc
import os
import subprocess
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import beartype
import jax
import jaxtyping
import pytest

# Where a float is wanted an int will do, as for Python's own type checkers.
checker = types.ModuleType("checker")
checker.check = beartype.beartype(conf=beartype.BeartypeConf(is_pep484_tower=True))  # pyright: ignore
sys.modules["checker"] = checker
jaxtyping.install_import_hook(["rpgssm", "rpgssm_study"], "checker.check")  # before anything imports them

jax.config.update("jax_platforms", "cpu")
jax.config.update("jax_enable_x64", True)
jax.config.update("jax_numpy_dtype_promotion", "strict")

SOURCES = [str(Path(__file__).resolve().parent / folder) for folder in ("src", "study/src")]
os.environ["PYTHONPATH"] = os.pathsep.join(SOURCES)  # processes that tests start run this tree, whatever is installed

USERS_FLAGS = os.environ.get("XLA_FLAGS", "")
QUICKER = "--xla_cpu_use_fusion_emitters=false"  # what takes XLA more than half of the time it compiles for


def pytest_configure() -> None:
    """All tests compile without XLA's fusion emitters, if this XLA can do without.

    Flags are read once, before anything is compiled, and one that XLA does not know ends the process: hence the trial
    in another. Workers inherit the flags.
    """
    if QUICKER in USERS_FLAGS:
        return
    environment = os.environ | {"XLA_FLAGS": f"{USERS_FLAGS} {QUICKER}".strip(), "JAX_PLATFORMS": "cpu"}
    tried = subprocess.run([sys.executable, "-c", "import jax; jax.devices()"], env=environment, capture_output=True)
    if tried.returncode == 0:
        os.environ["XLA_FLAGS"] = environment["XLA_FLAGS"]


@pytest.fixture
def lenient_promotion() -> Iterator[None]:
    """For calls into other libraries that rely on silent promotion of dtypes."""
    with jax.numpy_dtype_promotion("standard"):
        yield


@pytest.fixture
def unchecked_types() -> Iterator[None]:
    """For what users do wrong: the library's own checks are met, not those of the tests."""
    jaxtyping.config.update("jaxtyping_disable", True)
    yield
    jaxtyping.config.update("jaxtyping_disable", False)


@pytest.fixture(scope="session")
def compile_quickly(tmp_path_factory) -> Callable[[], AbstractContextManager[None]]:
    """A context in which programs are compiled with little optimisation, and once: a second fit of the same shapes
    finds the first."""
    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own  # among the workers of this run
    settings = {
        "jax_disable_most_optimizations": True,
        "jax_compilation_cache_dir": str(shared / "compiled"),
        "jax_persistent_cache_min_compile_time_secs": 0.2,
    }

    @contextmanager
    def quickly() -> Iterator[None]:
        before = {name: jax.config.values[name] for name in settings}  # contexts may lie in one another
        for name, value in settings.items():
            jax.config.update(name, value)
        yield
        for name, value in before.items():
            jax.config.update(name, value)

    return quickly


@pytest.fixture
def run_python() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a fresh Python with the given arguments, as a user would: none of the settings above hold in it.

    `quick`: programs that run only once are compiled quickly rather than well.
    """

    def run(*arguments: str, quick: bool = False) -> subprocess.CompletedProcess[str]:
        environment = os.environ | {"JAX_PLATFORMS": "cpu", "COLUMNS": "120", "NO_COLOR": "1"}
        if quick:
            environment["JAX_DISABLE_MOST_OPTIMIZATIONS"] = "1"
        else:
            environment["XLA_FLAGS"] = USERS_FLAGS.replace(QUICKER, "")
        return subprocess.run(
            [sys.executable, *arguments], env=environment, capture_output=True, text=True, timeout=300, check=False
        )

    return run


MAPS = Path("/proc/self/maps")
MANY_MAPS = 20_000  # of the 65 530 regions of memory that Linux lets a process have: past them, compiling crashes


def pytest_runtest_teardown() -> None:
    """Every compiled function takes some regions of memory. Before they run out, all are forgotten.

    After each test, not each file: those of one file alone can take them all.
    """
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY_MAPS:
        jax.clear_caches()
        gc.collect()
