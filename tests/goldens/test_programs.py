"""The training programs and the initial parameters are those of the goldens."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

from . import capture, cases

STORED = json.loads((Path(__file__).parent / "programs.json").read_text(encoding="utf-8"))
NAMES = [pytest.param(name, marks=() if case.quick else pytest.mark.slow) for name, case in cases.CASES.items()]
SAME_JAX = jax.__version__ == STORED["jax"]


@pytest.mark.parametrize("name", NAMES)
def test_program_and_start(name):
    case, stored = cases.CASES[name], STORED["cases"][name]
    found = capture.stages(case.run, case.stages)
    assert len(found) == len(stored)
    for number, (now, then) in enumerate(zip(found, stored, strict=True)):
        check_start(f"training {number} of the case {name!r}", now, then, exact=number == 0 and SAME_JAX)
    if not SAME_JAX:
        pytest.skip(f"programs are compared with JAX {STORED['jax']}, and this is {jax.__version__}; parameters agree")
    for number, (now, then) in enumerate(zip(found, stored, strict=True)):
        for what in ("advance", "evaluate"):
            check_program(f"training {number} of the case {name!r}", what, getattr(now, what), then[what])


def check_start(where, now, then, exact):
    """Bit for bit; but to rounding where a training came before, or with another JAX, which may round otherwise."""
    if exact:
        for what in ("params", "optimiser"):
            digest = capture.digest_of_arrays(getattr(now, what))
            assert digest == then[what], f"{where} starts from other {what}"
        return
    sums = capture.sums_of_arrays(now.params)
    assert [row[:2] for row in sums] == [row[:2] for row in then["sums"]], f"{where} has other parameters"
    np.testing.assert_allclose([row[2:] for row in sums], [row[2:] for row in then["sums"]], rtol=1e-4, atol=1e-5)


def check_program(where, what, now, then):
    """The same text; or the same operations, with arguments and independent operations in another order."""
    assert (now is None) == (then is None), f"{where}: is there a program {what}?"
    if now is None or now.text_digest == then["text"]:
        return
    assert now.graph_digest == then["graph"], (
        f"{where} lowers another program ({what}). To see what differs, write the programs of both commits with "
        "python -m tests.goldens.make_goldens --text FOLDER --only CASE, and compare the folders by diff"
    )


def test_the_cases_are_those_stored():
    assert list(STORED["cases"]) == list(cases.CASES)


TEXT = """module @jit_old attributes {mhlo.num_partitions = 1 : i32} {
  func.func public @main(%arg0: tensor<2xf32>) -> (tensor<2xf32> {jax.result_info = "result.state['a']"}) {
    %0 = call @shift(%arg0) : (tensor<2xf32>) -> tensor<2xf32>
    %1 = stablehlo.custom_call @lapack_spotrf_ffi(%0) : (tensor<2xf32>) -> tensor<2xf32>
    return %1 : tensor<2xf32>
  }
  func.func private @shift(%arg0: tensor<2xf32>) -> tensor<2xf32> {
    return %arg0 : tensor<2xf32>
  }
}
"""


def test_names_are_not_part_of_a_program():
    """But constants, shapes and calls into libraries are."""
    same = TEXT.replace("jit_old", "jit_new").replace("@shift", '@"<lambda>"').replace("state['a']", "b")
    assert capture.normalised(same) == capture.normalised(TEXT)
    assert "result" not in capture.normalised(TEXT)
    for old, new in [("spotrf", "dpotrf"), ("2xf32", "3xf32"), ("call @shift(%arg0)", "call @shift(%0)")]:
        assert capture.normalised(TEXT.replace(old, new)) != capture.normalised(TEXT)


def test_constants_are_part_of_a_program():
    def lowered(value):
        x = np.zeros(1000, np.float32)
        x[700] = value
        return capture.normalised(jax.jit(lambda y: y + x).lower(x).as_text())

    assert lowered(1.0) != lowered(1.0000001)


def digest(f, *arguments):
    return capture.Program(jax.jit(f).lower(*arguments)).graph_digest


def test_the_order_of_arguments_and_of_what_a_loop_carries_is_not_part_of_a_graph():
    """But what is done with which of them is."""
    x = np.ones((3, 3), np.float32)

    def one(a, b, swap=False):
        def body(carry):
            i, s, u = carry
            return i + 1, s @ (u if swap else b), jax.numpy.sin(u) * s

        return jax.lax.while_loop(lambda carry: carry[0] < 3, body, (0, a, b))

    def other(p):
        def body(carry):
            u, i, s = carry
            sin = jax.jit(jax.numpy.sin)(u)
            return sin * s, i + 1, s @ p["a"]

        u, i, s = jax.lax.while_loop(lambda carry: carry[1] < 3, body, (p["a"], 0, p["b"]))
        return {"a": s, "b": i, "c": u}

    assert digest(one, x, x) == digest(other, {"a": x, "b": x})
    assert digest(one, x, x) != digest(lambda a, b: one(a, b, swap=True), x, x)
    assert digest(lambda a, b: a * jax.numpy.sin(b) - b, x, x) != digest(lambda a, b: a * jax.numpy.sin(a) - b, x, x)
    assert digest(lambda a, b: a - jax.numpy.sin(b), x, x) != digest(lambda a, b: jax.numpy.sin(b) - a, x, x)
