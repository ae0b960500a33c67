"""Compile quickly rather than well, except where a test asks for the bits of the real thing."""

import functools

import jax
import pytest

QUICK_OPTIONS = {"xla_backend_optimization_level": 0, "xla_cpu_use_fusion_emitters": False}


@functools.cache
def known_options() -> dict:
    try:
        jax.jit(lambda x: x, compiler_options=QUICK_OPTIONS)(0.0)
    except jax.errors.JaxRuntimeError:
        return {}
    return QUICK_OPTIONS


@pytest.fixture(autouse=True)
def quick_compilation(request, monkeypatch):
    if "well_compiled" in request.fixturenames:
        return

    def compiled(f, *arguments):
        return jax.jit(f).lower(*arguments).compile(compiler_options=known_options())

    monkeypatch.setattr("rpgssm.training.program.compiled", compiled)


@pytest.fixture
def well_compiled():
    """As in use."""
