"""Read the training program and the initial parameters off a fit, without compiling or running the program.

`stages` is the one place that knows where the library lowers its training program. Point it elsewhere when that moves.
"""

import hashlib
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from unittest import mock

import jax
import numpy as np

from . import graph


class Program:
    """A lowered program: as normalised text, and two digests.

    `text_digest` changes with the order of arguments and of independent operations, `graph_digest` does not.
    """

    def __init__(self, lowered: Any) -> None:
        self._lowered = lowered

    @cached_property
    def text(self) -> str:
        return normalised(self._lowered.as_text())

    @cached_property
    def text_digest(self) -> str:
        return hashlib.sha256(self.text.encode()).hexdigest()

    @cached_property
    def graph_digest(self) -> str:
        return graph.digest(self._lowered.compiler_ir())


@dataclass
class Stage:
    """One training run: its programs, and the arrays that it starts from.

    `advance` does optimiser steps, `evaluate` scores validation data (None without such data).
    """

    advance: Program
    params: list[np.ndarray]
    optimiser: list[np.ndarray]
    evaluate: Program | None = None


class _Stopped(Exception):
    """Ends a fit when all that is wanted is known. Never seen outside of this file."""


def stages(fit: Callable[[], Any], count: int = 1) -> list[Stage]:
    """The first `count` training runs of a fit. All but the last really run, so keep them short."""
    from rpgssm.training import program

    found: list[Stage] = []
    compile_it = program.Program.compile

    def compiled(self: Any, state: Any, data: Any, validation: Any) -> None:
        zero, alive = np.zeros((), np.int32), jax.numpy.ones(state.step.shape, bool)
        advance = Program(jax.jit(self._advance_all).lower(state, alive, data, zero, zero))
        found.append(Stage(advance, _leaves(state.params), _leaves(state.optimizer)))
        if validation is not None:
            found[-1].evaluate = Program(jax.jit(self._evaluate_all).lower(state.params, state.keys, validation))
        if len(found) == count:
            raise _Stopped
        compile_it(self, state, data, validation)

    with as_in_use(), mock.patch.object(program.Program, "compile", compiled), suppress(_Stopped):
        fit()
    if len(found) != count:
        raise AssertionError(f"the fit lowered {len(found)} training programs, and {count} were expected")
    return found


def _leaves(tree: Any) -> list[np.ndarray]:
    return [np.asarray(leaf) for leaf in jax.tree.leaves(tree)]


@contextmanager
def as_in_use() -> Iterator[None]:
    """JAX as users have it, whatever the tests set: so numbers are the same in pytest and outside of it.

    But for one thing: programs are compiled quickly rather than well. This changes no program before it is compiled.
    """
    settings = {
        "jax_enable_x64": False,
        "jax_numpy_dtype_promotion": "standard",
        "jax_disable_most_optimizations": True,
    }
    before = {name: jax.config.values[name] for name in settings}
    for name, value in settings.items():
        jax.config.update(name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            jax.config.update(name, value)


_DEFINED = re.compile(r'func\.func (?:private|public) @([\w.$-]+|"[^"]*")')
_SYMBOL = re.compile(r'@([\w.$-]+|"[^"]*")')
_NAMED = re.compile(r'jax\.(?:result_info|arg_info|arg_names?) = "(?:[^"\\]|\\.)*"(?:, )?')


def normalised(text: str) -> str:
    """The text of a lowered program without the names of Python functions, modules, classes and fields.

    Functions are numbered by appearance. Names of custom calls (LAPACK) stay, and so do all constants.
    """
    text = re.sub(r"^module @\S+", "module @program", text)
    text = re.sub(r"\s*loc\([^\n]*\)$", "", text, flags=re.MULTILINE)
    text = _NAMED.sub("", text)
    text = re.sub(r", \}", "}", text).replace(" {}", "")
    own = {name for name in _DEFINED.findall(text) if name != "main"}
    numbers: dict[str, int] = {}

    def renamed(match: re.Match[str]) -> str:
        name = match[1]
        return f"@f{numbers.setdefault(name, len(numbers))}" if name in own else match[0]

    return _SYMBOL.sub(renamed, text)


def digest_of_arrays(arrays: list[np.ndarray]) -> str:
    """A hash of the arrays of a pytree, whatever their paths and their order."""
    rows = sorted((str(x.shape), str(x.dtype), np.ascontiguousarray(x).tobytes()) for x in arrays)
    found = hashlib.sha256()
    for shape, dtype, content in rows:
        found.update(f"{shape} {dtype} ".encode() + content)
    return found.hexdigest()


def sums_of_arrays(arrays: list[np.ndarray]) -> list[list[Any]]:
    """Shape, dtype, sum and sum of squares of each array, sorted: what other versions of JAX give up to rounding."""
    rows = []
    for x in arrays:
        y = x.astype(np.float64)
        rows.append([list(x.shape), str(x.dtype), float(y.sum()), float((y * y).sum())])
    return sorted(rows)


def described(found: Stage) -> dict[str, Any]:
    """A training run as it is stored: digests of its programs and of the arrays that it starts from."""

    def digests(program: Program | None) -> dict[str, str] | None:
        return None if program is None else {"text": program.text_digest, "graph": program.graph_digest}

    return {
        "advance": digests(found.advance),
        "evaluate": digests(found.evaluate),
        "params": digest_of_arrays(found.params),
        "optimiser": digest_of_arrays(found.optimiser),
        "sums": sums_of_arrays(found.params),
    }
