"""Choosing, windowing and splitting sequences: on the host, on the device and inside `jit`, against loops."""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences

N, T = 5, 8
LENGTHS = np.array([8, 3, 5, 8, 6], np.int32)


def example(ragged=True, discrete=False, count=N):
    rng = np.random.default_rng(0)
    exists = np.arange(T) < LENGTHS[:count, None] if ragged else np.ones((count, T), bool)
    seen = exists & (rng.random((count, T)) < 0.8)
    pixels = rng.integers(1, 255, (count, T, 2, 3)).astype(np.uint8) * seen[..., None, None].astype(np.uint8)
    speed = rng.standard_normal((count, T, 1)).astype(np.float32) * exists[..., None]
    controls = rng.integers(0, 4, (count, T)) if discrete else rng.standard_normal((count, T, 2))
    modalities = {"speed": Modality(speed, exists if ragged else None), "pixels": Modality(pixels, seen, 1 / 255)}
    return Sequences(modalities, controls, LENGTHS[:count] if ragged else None)


def equal(a, b):
    assert jax.tree.structure(a) == jax.tree.structure(b)
    for x, y in zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True):
        np.testing.assert_array_equal(x, y)


def is_numpy(sequences):
    return all(isinstance(x, np.ndarray) for x in jax.tree.leaves(sequences))


def test_size_and_names():
    x = example()
    assert (len(x), x.time) == (N, T)
    assert x.names == ("pixels", "speed")
    assert x.frame_shapes == {"pixels": (2, 3), "speed": (1,)}
    assert x.nbytes == N * T * (6 + 1 + 4 + 1 + 16) + 4 * N
    again = jax.tree.map(lambda leaf: leaf, x)  # JAX sorts the keys of mappings
    assert again.names == x.names


def test_frames_are_scaled_floats():
    x = example()
    frames = x.modalities["pixels"].frames()
    assert frames.dtype == jnp.float32
    np.testing.assert_allclose(frames, x.modalities["pixels"].values / 255, rtol=1e-6)


def test_observed():
    x = example()
    expected = sum(int(m.mask[n, t]) for m in x.modalities.values() for n in range(N) for t in range(T))
    assert x.observed() == expected
    assert int(jax.jit(lambda s: s.observed())(x)) == expected
    full = Sequences({"a": Modality(np.zeros((2, 3, 1))), "b": Modality(np.zeros((2, 3, 4)))})
    assert full.observed() == 12


@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("discrete", [True, False])
def test_take(ragged, discrete):
    x = example(ragged, discrete)
    indices = np.array([3, 0, 3])
    expected = jax.tree.map(lambda leaf: np.stack([leaf[3], leaf[0], leaf[3]]), x)
    taken = x.take(indices)
    equal(taken, expected)
    assert is_numpy(taken)
    equal(x.take([3, 0, 3]), expected)
    equal(x.take(np.array([-2, -5, -2])), expected)
    equal(x.to_device().take(indices), expected)
    equal(jax.jit(lambda i: x.take(i))(indices), expected)
    equal(jax.jit(lambda s, i: s.take(i))(x, indices), expected)
    assert len(x.take(np.array([], int))) == 0


def naive_window(x, starts, length, indices):
    """Frame by frame; the start moves back where the window would leave the array."""

    def cut(leaf):
        rows = []
        for n, start in zip(indices, starts, strict=True):
            begin = min(start, T - length)
            rows.append([leaf[n, begin + i] for i in range(length)])
        return np.array(rows)

    modalities = {
        name: Modality(cut(m.values), None if m.mask is None else cut(m.mask), m.scale)
        for name, m in x.modalities.items()
    }
    lengths = None
    if x.lengths is not None:
        exists = np.arange(T) < x.lengths[:, None]
        lengths = cut(exists).sum(1).astype(np.int32)
    return Sequences(modalities, cut(x.controls), lengths)


@pytest.mark.parametrize("ragged", [True, False])
@pytest.mark.parametrize("discrete", [True, False])
def test_window(ragged, discrete):
    x = example(ragged, discrete)
    starts = np.array([0, 2, 4, 7, 3])
    expected = naive_window(x, starts, 4, range(N))
    cut = x.window(starts, 4)
    equal(cut, expected)
    assert is_numpy(cut)
    equal(x.window(starts.tolist(), 4), expected)
    equal(x.to_device().window(starts, 4), expected)
    equal(jax.jit(lambda s, t: s.window(t, 4))(x, starts), expected)
    equal(jax.jit(lambda t: x.window(t, 4))(starts.astype(np.int32)), expected)
    equal(x.window(np.zeros(N, int), T), x)


@pytest.mark.parametrize("ragged", [True, False])
def test_windows_of_chosen_sequences(ragged):
    x = example(ragged)
    starts, indices = np.array([1, 0, 4]), np.array([2, 4, 2])
    expected = naive_window(x, starts, 3, indices)
    equal(x.window(starts, 3, indices), expected)
    equal(jax.jit(lambda s, t, i: s.window(t, 3, i))(x, starts, indices), expected)
    equal(x.take(indices).window(starts, 3), expected)


def test_windows_do_not_recompile():
    x, compiled = example().to_device(), []

    @eqx.filter_jit
    def cut(s, starts):
        compiled.append(1)
        return s.window(starts, 3)

    for start in range(3):
        cut(x, jnp.full(N, start))
    assert len(compiled) == 1


def test_wrong_windows():
    with pytest.raises(ValueError, match="windows of 9 frames cannot be cut from sequences of 8"):
        example().window(np.zeros(N, int), 9)
    with pytest.raises(ValueError, match="windows of 0 frames"):
        example().window(np.zeros(N, int), 0)
    with pytest.raises(ValueError, match="2 starts were given for 5 windows"):
        example().window([0, 1], 3)


def test_there_and_back():
    x = example()
    on_device = x.to_device()
    assert all(isinstance(leaf, jax.Array) for leaf in jax.tree.leaves(on_device))
    assert is_numpy(on_device.to_host())
    equal(on_device.to_host(), x)
    assert on_device.modalities["pixels"].values.dtype == np.uint8


def test_split_by_sequences():
    x = example()
    train, held_out = x.split(0.4, 3)
    assert (len(train), len(held_out)) == (3, 2)
    again = x.to_device().split(0.4, 3)
    equal((train, held_out), again)
    assert is_numpy(again)
    key = [tuple(c[:3, 0]) for c in x.controls]
    chosen = [[key.index(tuple(c[:3, 0])) for c in part.controls] for part in (train, held_out)]
    assert sorted(chosen[0] + chosen[1]) == list(range(N))
    assert all(part == sorted(part) for part in chosen)
    for part, indices in zip((train, held_out), chosen, strict=True):
        longest = LENGTHS[indices].max()
        assert part.time == longest
        np.testing.assert_array_equal(
            part.modalities["pixels"].values, x.modalities["pixels"].values[indices, :longest]
        )
    assert {tuple(x.split(0.4, seed)[1].controls[:, 0, 0]) for seed in range(10)} != {tuple(held_out.controls[:, 0, 0])}


@pytest.mark.parametrize(("fraction", "held_out"), [(0.01, 1), (0.99, 4), (0.5, 2)])
def test_split_leaves_something_on_both_sides(fraction, held_out):
    first, second = example().split(fraction, 0)
    assert (len(first), len(second)) == (N - held_out, held_out)


def test_split_drops_what_is_full():
    values = np.ones((2, 4, 1), np.float32)
    mask = np.array([[True] * 4, [True, True, False, False]])
    x = Sequences({"a": Modality(values * mask[..., None], mask)}, lengths=np.array([4, 2], np.int32))
    for part, length in zip(sorted(x.split(0.5, 0), key=lambda p: p.time), (2, 4), strict=True):
        assert part.time == length
        assert part.lengths is None
        assert part.modalities["a"].mask is None


def test_split_of_one_sequence_is_in_time():
    x = example(ragged=False, count=1)
    first, second = x.split(0.25, 0)
    assert (first.time, second.time) == (6, 2)
    together = np.concatenate([first.modalities["speed"].values, second.modalities["speed"].values], 1)
    np.testing.assert_array_equal(together, x.modalities["speed"].values)
    np.testing.assert_array_equal(np.concatenate([first.controls, second.controls], 1), x.controls)
    padded = example().take([2])  # 5 frames of 8 exist
    first, second = padded.split(0.4, 0)
    assert (first.time, second.time) == (3, 2)
    assert first.lengths is None
    assert second.lengths is None


def test_wrong_splits():
    with pytest.raises(ValueError, match="fraction to split off is 1"):
        example().split(1.0, 0)
    with pytest.raises(ValueError, match="the only sequence has 3 frames"):
        example().take([1]).split(0.5, 0)


def test_description():
    text = example().describe()
    pixels = example().modalities["pixels"]
    missing = LENGTHS.sum() - pixels.mask.sum()
    assert "5 sequences of 3 to 8 frames" in text
    assert f"pixels: 2×3 (uint8 scaled by 0.003922), {missing} of 30 frames missing" in text
    assert "speed: 1 (float32)\n" in text
    assert text.endswith("controls: 2 numbers")
    one = Sequences({"x": Modality(np.zeros((1, 2, 3), np.float32))}).describe()
    assert one == "1 sequence of 2 frames, 24 bytes\nx: 3 (float32)"
    assert example(discrete=True).to_device().describe().endswith("controls: discrete")
