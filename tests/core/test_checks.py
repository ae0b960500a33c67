"""Every complaint: what it says, and that valid input passes."""

import operator
import re
import time

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core import checks
from rpgssm.core.checks import check, check_chain, check_potentials
from rpgssm.core.types import GaussianChain, Potentials, Precision, StationaryChain

N, T, K = 4, 6, 3
EYE = np.eye(K, dtype=np.float32)
STRUCTURES = [(shared, diagonal) for shared in (True, False) for diagonal in (True, False)]


def stationary(k=K, scale=0.9, dtype=jnp.float32) -> StationaryChain:
    return StationaryChain(jnp.asarray(scale * np.linalg.qr(np.random.default_rng(0).normal(size=(k, k)))[0], dtype))


def gaussian_chain(batched=False, length=T, dtype=jnp.float32) -> GaussianChain:
    eye = jnp.asarray(np.eye(K), dtype)
    chain = GaussianChain.time_invariant(jnp.zeros(K, dtype), eye, 0.5 * eye, jnp.ones(K, dtype), 0.1 * eye, length)
    return jax.tree.map(lambda x: jnp.broadcast_to(x, (N, *x.shape)), chain) if batched else chain


def potentials(shared=False, diagonal=False, mask=None, dtype=jnp.float32) -> Potentials:
    rng = np.random.default_rng(1)
    lead = () if shared else (N, T)
    W = rng.normal(size=(*lead, K, K))
    value = rng.random((*lead, K)) if diagonal else W @ W.swapaxes(-1, -2)
    h = jnp.asarray(rng.normal(size=(N, T, K)), dtype)
    return Potentials(h, Precision(jnp.asarray(value, dtype), shared, diagonal), mask)


def replace(tree, path: str, value):
    """The same with another value at `path`, past the check of types that constructors have in the tests."""
    return eqx.tree_at(operator.attrgetter(path), tree, value, is_leaf=lambda leaf: leaf is None)


def edited(array, *edits):
    """A copy with array[index] = value for each (index, value)."""
    array = np.array(array)
    for index, value in edits:
        array[index] = value
    return jnp.asarray(array)


def complaint(*arguments, function=check) -> str:
    with pytest.raises(ValueError, match=r"\w") as info:
        function(*arguments)
    assert type(info.value) is ValueError
    return str(info.value)


def zeros(*shape, dtype=np.float32):
    return np.zeros(shape, dtype)


# ---------------------------------------------------------------------------------------------------------------------
# what is right


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64, jnp.bfloat16])
@pytest.mark.parametrize(("shared", "diagonal"), STRUCTURES)
def test_valid_input_passes(shared, diagonal, dtype):
    one = potentials(shared, diagonal, jnp.ones((N, T), bool), dtype)
    for chain in (stationary(dtype=dtype), gaussian_chain(False, T, dtype), gaussian_chain(True, T, dtype)):
        check(chain, one)
        check(chain, (one, replace(one, "mask", None)))


def test_numpy_arrays_pass():
    check(*jax.tree.map(np.asarray, (stationary(), potentials())))


def test_singular_and_zero_matrices_pass():
    """The precision of a partial observation, and noise that does not reach every direction."""
    rng = np.random.default_rng(2)
    v = rng.normal(size=(N, T, K, 1)) * 10.0 ** rng.uniform(-10, 10, (N, T, 1, 1))
    rank_one = edited((v @ v.swapaxes(-1, -2)).astype(np.float32), ((0, 0), 0))
    check(stationary(), replace(potentials(), "precision.value", rank_one))
    chain = gaussian_chain()
    check_chain(replace(replace(chain, "Q", jnp.zeros_like(chain.Q)), "Q1", jnp.zeros_like(chain.Q1)))


def test_one_frame_passes():
    one = jax.tree.map(lambda x: x[:, :1], potentials())
    check(stationary(), one)
    check(gaussian_chain(length=1), one)


def test_masked_frames_may_hold_anything():
    mask = edited(np.ones((N, T), bool), ((1, 2), False), ((3, 5), False))
    for diagonal in (True, False):
        bad = potentials(diagonal=diagonal)
        bad = replace(bad, "h", edited(bad.h, ((1, 2), np.nan), ((3, 5), np.inf)))
        bad = replace(bad, "precision.value", edited(bad.precision.value, ((1, 2), np.nan), ((3, 5), -1)))
        check(stationary(), replace(bad, "mask", mask))
        assert "not finite" in complaint(stationary(), bad)


# ---------------------------------------------------------------------------------------------------------------------
# chains


@pytest.mark.parametrize(
    ("A", "message"),
    [
        (1.5 * EYE, "the largest singular value of chain.A is 1.5, not below 1, .*: use project_singular_values"),
        (EYE, "the largest singular value of chain.A is 1, not"),
        (zeros(3, 2), r"chain.A has shape \(3, 2\), not \(latent=2, latent=2\)"),
        (zeros(2, 3, 3), r"chain.A has shape \(2, 3, 3\), not \(latent=3, latent=3\)"),
        (zeros(3), r"chain.A has shape \(3,\), not \(latent=3, latent=3\)"),
        (zeros(3, 3, dtype=np.int32), "chain.A has dtype int32, not a floating-point one: convert it with .astype"),
        (np.nan * EYE, "chain.A is not finite: look for a division by zero or an overflow"),
    ],
)
def test_stationary_chain(A, message):
    text = complaint(replace(stationary(), "A", jnp.asarray(A)), function=check_chain)
    assert re.match(message, text), text


def test_chain_of_something_else_than_arrays():
    chain = replace(stationary(), "A", 0.5)
    assert complaint(chain, function=check_chain) == "chain.A is a float, not an array: convert it with jnp.asarray"


ASYMMETRIC = r"\(entries \(i, j\) and \(j, i\) differ by 0.5\): pass \(X \+ X'\) / 2"


@pytest.mark.parametrize(
    ("batched", "name", "change", "message"),
    [
        (False, "m1", lambda x: x[None, None], r"has shape \(1, 1, 3\), not \(latent,\), or \(batch, latent\) for"),
        (False, "m1", lambda x: x[:2], r"has shape \(2,\), not \(latent=3\)"),
        (False, "Q1", lambda x: x[:, :2], r"has shape \(3, 2\), not \(latent=3, latent=3\)"),
        (False, "A", lambda x: x[0], r"has shape \(3, 3\), not \(transitions, latent=3, latent=3\)"),
        (False, "b", lambda x: x[:4], r"has shape \(4, 3\), not \(transitions=5, latent=3\)"),
        (False, "Q", lambda x: x[:4], r"has shape \(4, 3, 3\), not \(transitions=5, latent=3, latent=3\)"),
        (True, "A", lambda x: x[0], r"has shape \(5, 3, 3\), not \(batch=4, .*: all arrays .* have the batch axis"),
        (True, "Q", lambda x: x[:2], r"has shape \(2, 5, 3, 3\), not \(batch=4, transitions=5, latent=3, latent=3\)"),
        (False, "b", lambda x: x.astype(np.int32), "has dtype int32, not a floating"),
        (False, "Q", lambda x: x.astype(np.float64), "has dtype float64 but chain.A has float32: convert one"),
        (False, "m1", lambda x: edited(x, (1, np.inf)), "is not finite:"),
        (False, "b", lambda x: edited(x, (3, np.nan)), "is not finite at transition 3:"),
        (True, "m1", lambda x: edited(x, (2, np.nan)), "is not finite at sequence 2:"),
        (True, "b", lambda x: edited(x, ((2, 3), np.nan)), "is not finite at sequence 2, transition 3:"),
        (False, "Q1", lambda x: edited(x, ((0, 1), 0.5)), f"is not symmetric {ASYMMETRIC}"),
        (False, "Q", lambda x: edited(x, ((4, 0, 1), 0.5)), f"is not symmetric at transition 4 {ASYMMETRIC}"),
        (False, "Q1", lambda x: -2 * x, r"is not positive semidefinite \(smallest eigenvalue -2\): build it as"),
        (True, "Q1", lambda x: edited(x, (slice(1, 3), -EYE)), r"is .* at sequence 1 \(.* -1; and 1 more place\)"),
        (True, "Q", lambda x: edited(x, ((1, 3), -EYE), (2, -EYE)), r"is .* at sequence 1, transition 3 \(.* 5 more"),
    ],
)
def test_gaussian_chain(batched, name, change, message):
    chain = gaussian_chain(batched)
    wrong = jnp.asarray(change(np.asarray(getattr(chain, name))))
    text = complaint(replace(chain, name, wrong), function=check_chain)
    assert re.match(f"chain.{name} {message}", text), text


# ---------------------------------------------------------------------------------------------------------------------
# potentials: shapes


def test_kind_of_potentials():
    assert complaint(stationary(), [potentials()]) == "potentials is a list, not Potentials or a tuple of them"
    assert complaint(stationary(), ()) == "potentials is empty: there must be at least one modality"


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("h", zeros(T, K), r"has shape \(6, 3\), not \(batch, time, latent\): a single sequence needs .* h\[None\]"),
        ("h", zeros(N, T, K, dtype=np.int32), "has dtype int32, not a floating"),
        ("h", zeros(N, T, K, dtype=np.float64), "has dtype float64 but chain.A has float32"),
        ("h", zeros(N, T, 2), "has 2 latent dimensions but chain.A has 3: make"),
        ("h", zeros(2, T, K), r"has 2 sequences of 6 frames but potentials\[0\].h has 4 of 6: .* mask"),
        ("h", zeros(N, 5, K), r"has 4 sequences of 5 frames but potentials\[0\].h has 4 of 6"),
        ("h", zeros(N, 0, K), r"has shape \(4, 0, 3\), which holds nothing"),
        ("precision.value", zeros(N, T, K, K, dtype=np.int32), "has dtype int32, not a floating"),
        ("precision.value", zeros(N, T, K, K, dtype=float), r"has dtype float64 but potentials\[1\].h has float32"),
        ("mask", zeros(N, T), r"has dtype float32, not bool: pass mask.astype\(bool\), True where there is an obs"),
        ("mask", zeros(N, 5, dtype=bool), r"has shape \(4, 5\), not \(batch=4, time=6\)"),
    ],
)
def test_shapes_of_potentials(path, value, message):
    """Also while tracing, where shapes and dtypes are all there is to check."""
    both = (potentials(), replace(potentials(), path, jnp.asarray(value)))
    text = complaint(stationary(), both)
    assert re.match(rf"potentials\[1\].{path} {message}", text), text
    assert complaint(stationary(), both, function=jax.jit(lambda c, p: check(c, p))) == text


@pytest.mark.parametrize(("shared", "diagonal"), STRUCTURES)
def test_shape_of_the_precision(shared, diagonal):
    wrong = replace(potentials(shared, diagonal), "precision.value", jnp.zeros((2, 2, 2), jnp.float32))
    expected = ", ".join(["batch=4", "time=6"] * (not shared) + ["latent=3"] * (2 - diagonal))
    assert complaint(stationary(), wrong) == (
        f"potentials.precision.value has shape (2, 2, 2), not ({expected}): "
        f"that is what shared={shared}, diagonal={diagonal} means"
    )


def test_chain_and_potentials_do_not_fit():
    text = complaint(gaussian_chain(length=5), potentials())
    assert text.startswith("the chain has 4 transitions but potentials.h has 6 frames, which need 5: build it with")
    assert "length=6" in text
    text = complaint(gaussian_chain(True), (jax.tree.map(lambda x: x[:2], potentials()),))
    assert text.startswith("the chain is for 4 sequences but potentials[0].h has 2: give the chain one entry per seq")
    assert "potentials.h has 3 latent dimensions but chain.A has 2" in complaint(stationary(2), potentials())


# ---------------------------------------------------------------------------------------------------------------------
# potentials: values


def test_missing_frames_that_are_not_masked():
    h = edited(potentials().h, ((3, 1, 0), np.nan), ((3, 4), np.inf), ((3, 5, 2), np.nan))
    both = (potentials(), replace(potentials(), "h", h))
    where = "potentials[1].h is not finite at sequence 3, frame 1 (and 2 more places)"
    assert complaint(stationary(), both) == f"{where}: mask missing frames instead of passing NaN"


@pytest.mark.parametrize(
    ("shared", "diagonal", "edit", "message"),
    [
        (False, False, ((2, 5, 0, 0), np.nan), "is not finite at sequence 2, frame 5: mask missing frames"),
        (False, True, ((2, 5, 1), np.inf), "is not finite at sequence 2, frame 5: mask missing frames"),
        (True, False, ((0, 0), np.nan), "is not finite: look for"),
        (True, True, (0, np.nan), "is not finite: look for"),
        (False, False, ((2, 5, 0, 1), 70), "is not symmetric at sequence 2, frame 5 (entries"),
        (True, False, ((0, 1), 70), "is not symmetric (entries"),
        (False, False, ((2, 5), -EYE), "is not positive semidefinite at sequence 2, frame 5 (smallest eigenvalue -1):"),
        (True, False, (slice(None), -EYE), "is not positive semidefinite (smallest eigenvalue -1): build it as"),
        (False, True, ((2, 5, 1), -0.5), "is negative at sequence 2, frame 5 (smallest entry -0.5): pass it through"),
        (True, True, (1, -0.5), "is negative at latent dimension 1 (smallest entry -0.5): pass it through"),
    ],
)
def test_values_of_the_precision(shared, diagonal, edit, message):
    one = potentials(shared, diagonal)
    wrong = replace(one, "precision.value", edited(one.precision.value, edit))
    text = complaint(stationary(), wrong)
    assert text.startswith(f"potentials.precision.value {message}")
    masked = replace(wrong, "mask", edited(np.ones((N, T), bool), ((2, 5), False)))
    if shared:
        assert complaint(stationary(), masked) == text
    else:
        check(stationary(), masked)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_negative_eigenvalues_count_beyond_rounding(dtype):
    U = np.linalg.qr(np.random.default_rng(3).normal(size=(K, K)))[0]
    with_smallest = lambda x: jnp.asarray((U * [1.0, 0.5, x]) @ U.T, dtype)  # noqa: E731
    eps, chain, one = np.finfo(dtype).eps, stationary(dtype=dtype), potentials(shared=True, dtype=dtype)
    check(chain, replace(one, "precision.value", with_smallest(-eps)))
    text = complaint(chain, replace(one, "precision.value", with_smallest(-1e4 * eps)))
    assert "not positive semidefinite (smallest eigenvalue -" in text
    # beside a wrong one, too
    value = edited(np.broadcast_to(with_smallest(-eps), (N, T, K, K)), ((1, 4), with_smallest(-1)))
    text = complaint(chain, replace(potentials(dtype=dtype), "precision.value", value))
    assert "at sequence 1, frame 4 (smallest eigenvalue -1): " in text


def test_values_are_skipped_while_tracing():
    bad = replace(potentials(), "h", jnp.full((N, T, K), jnp.nan, jnp.float32))
    jax.jit(lambda chain, p: check(chain, p))(stationary(scale=2.0), bad)
    # values that are known are checked, unless what is masked is not known
    assert "not finite" in complaint(stationary(), function=jax.jit(lambda chain: check_potentials(bad, chain)))
    jax.jit(lambda mask: check_potentials(replace(bad, "mask", mask), stationary()))(jnp.ones((N, T), bool))


def test_large_batches_are_quick():
    """100 000 matrices take a fraction of a second, and one bad one among them is found."""
    Λ = np.broadcast_to(EYE, (100, 1000, K, K)).copy()
    big = Potentials(jnp.zeros((100, 1000, K), jnp.float32), Precision(jnp.asarray(Λ), False, False))
    start = time.perf_counter()
    check(stationary(), big)
    assert time.perf_counter() - start < 5
    wrong = replace(big, "precision.value", edited(Λ, ((77, 777, 1, 1), -1)))
    assert "at sequence 77, frame 777 (smallest eigenvalue -1):" in complaint(stationary(), wrong)


def test_blocks_of_matrices(monkeypatch):
    """The same answer however many matrices are looked at together."""
    mask = edited(np.ones((N, T), bool), ((0, 3), False))
    value = edited(potentials().precision.value, ((0, 3), -EYE), ((1, 2), -3 * EYE), ((3, 5), -EYE))
    wrong = replace(potentials(mask=mask), "precision.value", value)
    for entries in (1, 4 * K**2, 10**6):
        monkeypatch.setattr(checks, "BLOCK", entries)
        assert "at sequence 1, frame 2 (smallest eigenvalue -3; and 1 more place):" in complaint(stationary(), wrong)
