"""What must not change the free energy: padding, the order of the batch, empty modalities, what a mask hides."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.core.smoother import smooth
from rpgssm.core.types import GaussianChain, Potentials, Precision

from .problems import Problem, assert_trees_close, quick_jit, random_problem, symmetric
from .test_free_energy import PARALLEL, SEQUENTIAL, evaluate

PAIRS = [
    ("stationary", "shared full", SEQUENTIAL),
    ("stationary", "dependent full", PARALLEL),
    ("general", "dependent diagonal", SEQUENTIAL),
    ("batched", "shared diagonal", SEQUENTIAL),
]


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


def split_time(gradient: Problem, before: int, time: int, steps_axis: int):
    """A gradient's part inside the frames [before, before + time), and its part outside."""
    chain, potentials = gradient

    def cut(x, axis, start, length):
        index = np.arange(start, start + length)
        return np.take(x, index, axis), np.delete(x, index, axis)

    inside, outside = [], []
    for p in potentials:
        h = cut(p.h, 1, before, time)
        value = p.precision.value
        Λ = (value, np.zeros(0)) if p.precision.shared else cut(value, 1, before, time)
        inside += [h[0], Λ[0]]
        outside += [h[1], Λ[1]]
    for x in (chain.A, chain.b, chain.Q) if isinstance(chain, GaussianChain) else ():
        part = cut(x, steps_axis, 0, time - 1)
        inside.append(part[0])
        outside.append(part[1])
    rest = (chain.m1, chain.Q1) if isinstance(chain, GaussianChain) else (chain.A,)
    return [*inside, *rest], outside


@pytest.mark.parametrize("before", [0, 2])
@pytest.mark.parametrize(("chain", "precision", "options"), PAIRS)
@pytest.mark.parametrize("masked", [False, True])
def test_padding(chain, precision, options, masked, before):
    if before and (chain != "stationary" or masked):
        pytest.skip("only a stationary chain may start earlier")
    problem = random_problem(11, chain, precision, masked=masked, time=4, latent=2)
    longer = padded(problem, before, 3)
    loss, gradient, info = evaluate(problem, options)
    padded_loss, padded_gradient, padded_info = evaluate(longer, options)
    np.testing.assert_allclose(padded_loss, loss, rtol=1e-12)
    assert_trees_close(padded_info, info, 1e-12)
    axis = int(chain == "batched")
    expected, _ = split_time(symmetric(gradient), 0, 4, axis)
    inside, outside = split_time(symmetric(padded_gradient), before, 4, axis)
    assert_trees_close(inside, expected, 1e-11)
    assert all(np.all(x == 0) for x in outside)

    run = quick_jit(lambda p: smooth(*p, cross=True, **options))
    posterior, padded_posterior = run(problem), run(longer)
    frames, steps = slice(before, before + 4), slice(before, before + 3)
    np.testing.assert_allclose(padded_posterior.log_z, posterior.log_z, rtol=1e-12)
    for name, valid in (("mean", frames), ("cov", frames), ("cross", steps)):
        short, long = getattr(posterior, name), getattr(padded_posterior, name)[:, valid]
        np.testing.assert_allclose(long, np.broadcast_to(short, long.shape), atol=1e-12, err_msg=name)


@pytest.mark.parametrize(("chain", "precision", "options"), PAIRS)
def test_permuting_the_batch_permutes(chain, precision, options):
    problem = random_problem(12, chain, precision, "shared full", masked=(True, False), time=3, latent=2)
    order = np.array([2, 0, 3, 1])

    def permute(problem):
        def potentials(p):
            value = p.precision.value if p.precision.shared else p.precision.value[order]
            mask = None if p.mask is None else p.mask[order]
            return Potentials(p.h[order], Precision(value, p.precision.shared, p.precision.diagonal), mask)

        c = jax.tree.map(lambda x: x[order], problem.chain) if chain == "batched" else problem.chain
        return Problem(c, tuple(map(potentials, problem.potentials)))

    loss, gradient, info = evaluate(problem, options)
    permuted_loss, permuted_gradient, permuted_info = evaluate(permute(problem), options)
    np.testing.assert_allclose(permuted_loss, loss, rtol=1e-13)
    expected = jax.tree.map(lambda x: x[..., order] if x.ndim else x, info)
    assert_trees_close(permuted_info, expected, 1e-13)
    as_jax = jax.tree.map(jnp.asarray, gradient)
    assert_trees_close(permuted_gradient, permute(as_jax), 1e-12)


@pytest.mark.parametrize("shared", [True, False])
@pytest.mark.parametrize("chain", ["stationary", "batched"])
def test_modality_without_information(chain, shared):
    """A zero potential leaves everything as it was: its own bracket is zero too; a masked modality does not count."""
    problem = random_problem(13, chain, "shared full", masked=True, time=3, latent=2)
    h = problem.potentials[0].h
    value = jnp.zeros((2, 2) if shared else (*h.shape, 2))
    zero = Potentials(jnp.zeros_like(h), Precision(value, shared, False))
    unseen = Potentials(h, Precision(value + jnp.eye(2), shared, False), jnp.zeros(h.shape[:2], bool))
    loss, gradient, info = evaluate(problem)
    _, _, more = evaluate(Problem(problem.chain, (*problem.potentials, zero)))
    assert_trees_close([x[:1] for x in more[2:5]], list(info[2:5]), 1e-12)
    assert_trees_close(list(more[:2]), list(info[:2]), 1e-12)
    assert_trees_close(more.posterior[1] - more.recognition[1] - more.mixture[1], np.zeros(4), 1e-12)
    assert more.observed == info.observed + h.shape[0] * h.shape[1]
    same_loss, same_gradient, same = evaluate(Problem(problem.chain, (*problem.potentials, unseen)))
    np.testing.assert_allclose(same_loss, loss, rtol=1e-12)
    assert_trees_close([x[1] for x in same[2:5]], [np.zeros(4)] * 3, 0.0)
    assert_trees_close(same_gradient.chain, gradient.chain, 1e-11)
    assert_trees_close(same_gradient.potentials[0], gradient.potentials[0], 1e-11)
    assert all(np.all(x == 0) for x in jax.tree.leaves(same_gradient.potentials[1]))


@pytest.mark.parametrize("garbage", [np.nan, np.inf, -1e30])
@pytest.mark.parametrize(("chain", "precision", "options"), PAIRS)
def test_content_of_masked_frames_is_ignored(chain, precision, options, garbage):
    problem = random_problem(14, chain, precision, masked=True, time=4, latent=2)
    (p,) = problem.potentials

    def spoil(x):
        return jnp.where(p.mask.reshape(*p.mask.shape, *[1] * (x.ndim - 2)), x, garbage)

    spoilt = eqx.tree_at(lambda p: p.h, p, spoil(p.h))
    if not p.precision.shared:
        spoilt = eqx.tree_at(lambda p: p.precision.value, spoilt, spoil(p.precision.value))
    expected = evaluate(problem, options)
    actual = evaluate(Problem(problem.chain, (spoilt,)), options)
    assert_trees_close(actual, expected, 1e-13)
    assert np.all(actual[1].potentials[0].h[~np.asarray(p.mask)] == 0)
    run = quick_jit(lambda p: smooth(*p, **options))
    assert_trees_close(run(Problem(problem.chain, (spoilt,))), run(problem), 1e-13)


@pytest.mark.parametrize("precision", ["shared full", "dependent full"])
def test_nothing_observed_at_all(precision):
    problem = random_problem(15, "stationary", precision, masked=True, time=3, latent=2)
    blind = eqx.tree_at(lambda p: p.potentials[0].mask, problem, jnp.zeros((4, 3), bool))
    loss, gradient, info = evaluate(blind)
    assert loss == 0
    assert all(np.all(x == 0) for x in jax.tree.leaves((gradient, info)))


@pytest.mark.parametrize("lanes", [1, 6, 9])
def test_chunks_do_not_matter(lanes):
    problem = random_problem(16, "stationary", "dependent full", masked=True, time=7, latent=2)
    assert_trees_close(evaluate(problem, lanes=lanes), evaluate(problem), 1e-13)
