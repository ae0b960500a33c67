"""What must not change the free energy: padding, the order of the batch, empty modalities, what a mask hides."""

import functools

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core.smoother import smooth
from rpgssm.core.types import GaussianChain, Potentials, Precision

from .problems import Problem, assert_trees_close, evaluate, quick_jit, random_problem, symmetric

KINDS = [  # chain, precision, method
    ("stationary", "shared full", "sequential"),
    ("stationary", "dependent full", "parallel"),
    ("general", "dependent diagonal", "sequential"),
    ("batched", "shared diagonal", "sequential"),
]
BATCH, TIME, LATENT = 4, 4, 2  # the same everywhere, so that little is compiled


@functools.cache
def compiled_smooth(method: str):
    return quick_jit(lambda problem: smooth(*problem, cross=True, method=method))


def masked_problem(seed: int, chain: str, *precisions: str) -> Problem:
    return random_problem(seed, chain, *precisions, masked=True, batch=BATCH, time=TIME, latent=LATENT)


def padded(problem: Problem, before: int, after: int) -> Problem:
    """Masked frames with arbitrary content before the first and after the last frame."""
    rng = np.random.default_rng(0)

    def pad(x, axis, scale=3.0):
        widths = [(0, 0)] * x.ndim
        widths[axis] = (before, after)
        noise = rng.standard_normal(np.pad(x, widths).shape) * scale
        inside = np.pad(np.ones(x.shape, bool), widths)
        return jnp.asarray(np.where(inside, np.pad(x, widths), noise))

    def pad_potentials(p):
        observed = jnp.ones(p.h.shape[:2], bool) if p.mask is None else p.mask
        value = p.precision.value if p.precision.shared else pad(p.precision.value, 1)
        mask = jnp.pad(observed, ((0, 0), (before, after)))
        return Potentials(pad(p.h, 1), Precision(value, p.precision.shared, p.precision.diagonal), mask)

    chain = problem.chain
    if isinstance(chain, GaussianChain):
        axis = int(chain.batched)
        Q = np.concatenate([chain.Q, np.repeat(np.take(chain.Q, [-1], axis), after, axis)], axis)
        chain = GaussianChain(chain.m1, chain.Q1, pad(chain.A, axis, 0.5), pad(chain.b, axis), jnp.asarray(Q))
    return Problem(chain, tuple(map(pad_potentials, problem.potentials)))


def split_time(gradient: Problem, before: int):
    """A gradient's part inside the frames [before, before + TIME), and its part outside."""
    chain, (p,) = gradient

    def cut(x, axis, start, length):
        index = np.arange(start, start + length)
        return np.take(x, index, axis), np.delete(x, index, axis)

    parts = [cut(p.h, 1, before, TIME)]
    rest = []
    if p.precision.shared:
        rest += [p.precision.value]
    else:
        parts += [cut(p.precision.value, 1, before, TIME)]
    if isinstance(chain, GaussianChain):
        parts += [cut(x, int(chain.batched), 0, TIME - 1) for x in (chain.A, chain.b, chain.Q)]
        rest += [chain.m1, chain.Q1]
    else:
        rest += [chain.A]
    inside, outside = zip(*parts, strict=True)
    return [*inside, *rest], outside


# only a stationary chain may start earlier
PADDINGS = [
    pytest.param(*kind, *((2, 1) if kind[0] == "stationary" else (0, 3)), marks=[pytest.mark.slow] * (i % 2 == 0))
    for i, kind in enumerate(KINDS)
]


@pytest.mark.parametrize(("chain", "precision", "method", "before", "after"), PADDINGS)
def test_padding(chain, precision, method, before, after):
    problem = masked_problem(11, chain, precision)
    if method == "parallel":  # everything is observed, for once
        problem = eqx.tree_at(lambda p: p.potentials[0].mask, problem, jnp.ones((BATCH, TIME), bool))
    longer = padded(problem, before, after)
    loss, gradient, info = evaluate(problem, method=method)
    padded_loss, padded_gradient, padded_info = evaluate(longer, method=method)
    np.testing.assert_allclose(padded_loss, loss, rtol=1e-12)
    assert_trees_close(padded_info, info, 1e-12)
    expected, _ = split_time(symmetric(gradient), 0)
    inside, outside = split_time(symmetric(padded_gradient), before)
    assert_trees_close(inside, expected, 1e-11)
    assert all(np.all(x == 0) for x in outside)

    posterior, padded_posterior = (compiled_smooth(method)(p) for p in (problem, longer))
    frames, steps = slice(before, before + TIME), slice(before, before + TIME - 1)
    np.testing.assert_allclose(padded_posterior.log_z, posterior.log_z, rtol=1e-12, atol=1e-13)
    for name, valid in (("mean", frames), ("cov", frames), ("cross", steps)):
        short, long = getattr(posterior, name), getattr(padded_posterior, name)
        np.testing.assert_allclose(long[:, valid], short, atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("chain", "precision", "method"), KINDS)
def test_permuting_the_batch_permutes(chain, precision, method):
    problem = masked_problem(12, chain, precision)
    order = np.array([2, 0, 3, 1])

    def permute(problem):
        (p,) = problem.potentials
        value = p.precision.value if p.precision.shared else p.precision.value[order]
        mask = None if p.mask is None else p.mask[order]
        q = Potentials(p.h[order], Precision(value, p.precision.shared, p.precision.diagonal), mask)
        c = jax.tree.map(lambda x: x[order], problem.chain) if chain == "batched" else problem.chain
        return Problem(c, (q,))

    loss, gradient, info = evaluate(problem, method=method)
    permuted_loss, permuted_gradient, permuted_info = evaluate(permute(problem), method=method)
    np.testing.assert_allclose(permuted_loss, loss, rtol=1e-13)
    assert_trees_close(permuted_info, jax.tree.map(lambda x: x[..., order] if x.ndim else x, info), 1e-13)
    assert_trees_close(permuted_gradient, permute(jax.tree.map(jnp.asarray, gradient)), 1e-12)


@pytest.mark.parametrize(("chain", "shared"), [("stationary", True), ("batched", False)])
def test_modality_without_information(chain, shared):
    """A zero potential leaves everything as it was: its own bracket is zero too; a masked modality does not count."""
    problem = masked_problem(13, chain, "shared diagonal")
    h = problem.potentials[0].h
    value = jnp.zeros((LATENT,) if shared else (*h.shape, LATENT))
    seen, unseen = jnp.ones((BATCH, TIME), bool), jnp.zeros((BATCH, TIME), bool)
    zero = Potentials(jnp.zeros_like(h), Precision(value, shared, shared), seen)
    ignored = Potentials(h, Precision(value + 1, shared, shared), unseen)
    loss, gradient, info = evaluate(problem, method="sequential")

    _, _, more = evaluate(Problem(problem.chain, (*problem.potentials, zero)), method="sequential")
    assert_trees_close([more.free_energy, more.log_z], [info.free_energy, info.log_z], 1e-12)
    assert_trees_close([x[:1] for x in more[2:5]], list(info[2:5]), 1e-12)
    assert_trees_close(more.posterior[1] - more.recognition[1] - more.mixture[1], np.zeros(BATCH), 1e-12)
    assert more.observed == info.observed + BATCH * TIME

    same_loss, same_gradient, same = evaluate(
        Problem(problem.chain, (*problem.potentials, ignored)), method="sequential"
    )
    np.testing.assert_allclose(same_loss, loss, rtol=1e-12)
    assert all(np.all(x[1] == 0) for x in same[2:5])
    assert_trees_close(same_gradient.chain, gradient.chain, 1e-11)
    assert_trees_close(same_gradient.potentials[0], gradient.potentials[0], 1e-11)
    assert all(np.all(x == 0) for x in jax.tree.leaves(same_gradient.potentials[1]))


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -1e30])
@pytest.mark.parametrize(("chain", "precision", "method"), KINDS)
def test_content_of_masked_frames_is_ignored(chain, precision, method, garbage):
    problem = masked_problem(14, chain, precision)
    (p,) = problem.potentials

    def spoil(x):
        return jnp.where(p.mask.reshape(*p.mask.shape, *[1] * (x.ndim - 2)), x, garbage)

    spoilt = eqx.tree_at(lambda p: p.h, p, spoil(p.h))
    if not p.precision.shared:
        spoilt = eqx.tree_at(lambda p: p.precision.value, spoilt, spoil(p.precision.value))
    spoilt = Problem(problem.chain, (spoilt,))
    actual = evaluate(spoilt, method=method)
    assert_trees_close(actual, evaluate(problem, method=method), 1e-13)
    assert np.all(actual[1].potentials[0].h[~np.asarray(p.mask)] == 0)
    assert_trees_close(compiled_smooth(method)(spoilt), compiled_smooth(method)(problem), 1e-13)


@pytest.mark.parametrize(("chain", "precision", "method"), KINDS)
def test_nothing_observed_at_all(chain, precision, method):
    problem = masked_problem(15, chain, precision)
    blind = eqx.tree_at(lambda p: p.potentials[0].mask, problem, jnp.zeros((BATCH, TIME), bool))
    loss, gradient, info = evaluate(blind, method=method)
    assert all(np.all(np.abs(x) < 1e-12) for x in jax.tree.leaves((loss, gradient, info)))


@pytest.mark.parametrize("lanes", [1, 8])
def test_chunks_do_not_matter(lanes):
    problem = masked_problem(16, "stationary", "dependent full")
    assert_trees_close(evaluate(problem, method="parallel", lanes=lanes), evaluate(problem, method="parallel"), 1e-13)
