"""The command `rpgssm`, as a user meets it: mostly through a process of its own."""

import sys
import types

import pytest

import rpgssm
from rpgssm import cli
from rpgssm.bench.config import BenchCoreConfig


@pytest.fixture
def fake_bench(monkeypatch):
    """Stands in for the benchmark: keeps the settings it is given, and raises `error` if there is one."""
    fake = types.SimpleNamespace(config=None, error=None)

    def run(config):
        fake.config = config
        if fake.error is not None:
            raise fake.error

    module = types.ModuleType("rpgssm.bench.core")
    monkeypatch.setattr(module, "run", run, raising=False)
    monkeypatch.setitem(sys.modules, "rpgssm.bench.core", module)
    return fake


@pytest.mark.parametrize("arguments", [[], ["--help"]])
def test_help_lists_the_commands(run_python, arguments):
    result = run_python("-m", "rpgssm.cli", *arguments)
    assert result.returncode == 0, result.stderr
    assert "usage: rpgssm" in result.stdout
    assert "bench" in result.stdout


def test_help_of_bench_core_lists_its_options(run_python):
    result = run_python("-m", "rpgssm.cli", "bench", "core", "--help")
    assert result.returncode == 0, result.stderr
    for option in ("--small", "--output", "--cases", "--repeats"):
        assert option in result.stdout


def test_help_does_not_import_jax(run_python):
    code = """
import sys
from rpgssm.cli import main
try:
    main(["bench", "core", "--help"])
except SystemExit as end:
    assert end.code == 0
assert "jax" not in sys.modules
"""
    result = run_python("-c", code)
    assert result.returncode == 0, result.stderr


def test_version(run_python):
    result = run_python("-m", "rpgssm.cli", "--version")
    assert result.returncode == 0, result.stderr
    assert result.stdout == f"rpgssm {rpgssm.__version__}\n"


@pytest.mark.parametrize("arguments", [["bnech"], ["bench"], ["bench", "cora"], ["bench", "core", "--repeat-s", "3"]])
def test_unknown_or_missing_command(run_python, arguments):
    result = run_python("-m", "rpgssm.cli", *arguments)
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    assert "--help" in result.stdout + result.stderr


def test_settings_reach_the_benchmark(fake_bench, tmp_path):
    output = tmp_path / "results.json"
    cli.main(["bench", "core", "--small", "--cases", "filter", "smoother", "--repeats", "3", "--output", str(output)])
    assert fake_bench.config == BenchCoreConfig(small=True, output=output, cases=("filter", "smoother"), repeats=3)


def test_defaults_of_bench_core(fake_bench):
    cli.main(["bench", "core"])
    assert fake_bench.config == BenchCoreConfig(small=False, output=None, cases=(), repeats=30)


@pytest.mark.parametrize("error", [ValueError("no case 'x':\n  choose one of a, b"), FileNotFoundError("no file 'x'")])
def test_errors_the_user_can_act_on_are_one_line(fake_bench, capsys, error):
    fake_bench.error = error
    with pytest.raises(SystemExit) as end:
        cli.main(["bench", "core"])
    assert end.value.code == 2
    message = capsys.readouterr().err
    assert message.startswith("rpgssm: error: no ")
    assert message.count("\n") == 1


@pytest.mark.parametrize("error", [RuntimeError("defect"), UnicodeError("a ValueError, but nobody's input")])
def test_defects_keep_their_traceback(fake_bench, error):
    fake_bench.error = error
    with pytest.raises(type(error)):
        cli.main(["bench", "core"])
