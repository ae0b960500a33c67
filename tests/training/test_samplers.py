"""Samplers: batches without replacement, windows inside the sequences, the same at every call."""

import jax.numpy as jnp
import jax.random as jr
import numpy as np
import pytest

from rpgssm.data import Modality, Sequences
from rpgssm.training import RandomWindows, SimilarWindows, window_for
from rpgssm.training.samplers import batch_at, in_order, shuffle


def numbered(n: int, t: int, lengths=None) -> Sequences:
    """Frame t of sequence n is (n, t), so that one sees where a frame came from."""
    where = np.stack(np.meshgrid(np.arange(n), np.arange(t), indexing="ij"), -1).astype(np.int32)
    if lengths is None:
        return Sequences({"x": Modality(where)}, controls=where[..., 1].copy())
    lengths = np.asarray(lengths, np.int32)
    mask = np.arange(t) < lengths[:, None]
    return Sequences({"x": Modality(np.where(mask[..., None], where, 0), mask)}, None, lengths)


def epoch(data, plan, key, number):
    order = shuffle(plan, key, jnp.int32(number))
    return [batch_at(data, plan, order, jnp.int32(i)) for i in range(plan.batches)]


def test_an_epoch_shows_each_sequence_at_most_once():
    data, key = numbered(11, 3), jr.key(0)
    plan = RandomWindows().plan(data, 4, None)
    assert (plan.batches, plan.batch_size) == (2, 4)
    seen = []
    for number in range(6):
        indices = np.concatenate([np.asarray(sequences) for _, sequences in epoch(data, plan, key, number)])
        assert len(set(indices)) == 8
        seen.append(tuple(indices))
    assert len(set(seen)) == 6
    assert set(np.ravel(seen)) == set(range(11)), "what one epoch drops, another shows"


def test_batches_hold_what_they_say():
    data, key = numbered(7, 3), jr.key(1)
    for batch, sequences in epoch(data, RandomWindows().plan(data, 3, None), key, 0):
        np.testing.assert_array_equal(batch.modalities["x"].values, data.modalities["x"].values[np.asarray(sequences)])
        np.testing.assert_array_equal(batch.controls, data.controls[np.asarray(sequences)])


def test_fewer_sequences_than_a_batch():
    plan = RandomWindows().plan(numbered(3, 2), 32, None)
    assert (plan.batches, plan.batch_size) == (1, 3)


def test_order_is_a_function_of_key_and_epoch():
    data = numbered(20, 9)
    plan = RandomWindows().plan(data, 4, 5)
    first, again = (shuffle(plan, jr.key(3), jnp.int32(5)) for _ in range(2))
    other = shuffle(plan, jr.key(4), jnp.int32(5))
    np.testing.assert_array_equal(first.items, again.items)
    np.testing.assert_array_equal(first.shift, again.shift)
    assert not np.array_equal(first.items, other.items)


def test_windows_of_ragged_sequences():
    lengths = [9, 3, 4, 7, 9, 5]
    data, key = numbered(6, 9, lengths), jr.key(2)
    plan = RandomWindows().plan(data, 3, 4)
    starts: dict[int, set[int]] = {n: set() for n in range(6)}
    for number in range(60):
        for batch, sequences in epoch(data, plan, key, number):
            values, mask = np.asarray(batch.modalities["x"].values), np.asarray(batch.modalities["x"].mask)
            for row, n in enumerate(np.asarray(sequences)):
                observed = values[row][mask[row]]
                assert len(observed) == batch.lengths[row] == min(lengths[n], 4)
                assert (observed[:, 0] == n).all()
                np.testing.assert_array_equal(np.diff(observed[:, 1]), 1)
                starts[int(n)].add(int(observed[0, 1]))
    for n, length in enumerate(lengths):
        assert starts[n] == set(range(max(length - 4, 0) + 1)), "every place is drawn sooner or later"


def test_few_long_sequences_give_several_windows():
    data, key = numbered(2, 50), jr.key(0)
    plan = RandomWindows().plan(data, 32, 10)
    assert plan.batch_size == 8
    starts = set()
    for number in range(30):
        ((batch, _),) = epoch(data, plan, key, number)
        frames = np.asarray(batch.modalities["x"].values).reshape(-1, 2)
        assert len({tuple(frame) for frame in frames}) == len(frames) == 80, "windows do not overlap"
        np.testing.assert_array_equal(np.asarray(batch.controls).ravel(), frames[:, 1])
        starts |= set(np.asarray(batch.modalities["x"].values)[:, 0, 1].tolist())
    assert len(starts) > 20


def test_validation_shows_everything_in_fixed_batches():
    data = numbered(5, 9)
    plan = RandomWindows().validation(data, 4, 4)
    order = in_order(plan)
    batches = [batch_at(data, plan, order, jnp.int32(i))[0] for i in range(plan.batches)]
    assert [len(batch) for batch in batches] == [4, 4, 4]
    frames = np.concatenate([np.asarray(batch.modalities["x"].values).reshape(-1, 2) for batch in batches])
    assert {tuple(frame) for frame in frames} == {(n, t) for n in range(5) for t in range(8)}


def test_windows_longer_than_the_sequences_are_whole_sequences():
    assert RandomWindows().plan(numbered(4, 6), 2, 6).window is None


def test_no_sequences():
    with pytest.raises(ValueError, match="no sequences in `data`"):
        RandomWindows().plan(numbered(0, 3), 2, None)


def in_front_of_scenes(lengths=None) -> tuple[Sequences, np.ndarray]:
    """24 films of 8×12 pixels: scene 0, 1 or 2 behind noise, another one in each half; and the scenes."""
    rng = np.random.default_rng(0)
    pictures = rng.normal(size=(3, 8, 12)).astype(np.float32)
    scenes = rng.integers(0, 3, (24, 2))
    x = pictures[np.repeat(scenes, 5, axis=1)] + 0.3 * rng.normal(size=(24, 10, 8, 12)).astype(np.float32)
    if lengths is None:
        return Sequences({"x": Modality(x)}), scenes
    mask = np.arange(10) < lengths[:, None]
    return Sequences({"x": Modality(np.where(mask[..., None, None], x, 0), mask)}, None, lengths), scenes


@pytest.mark.parametrize("lengths", [None, np.where(np.arange(24) < 3, 5, 10).astype(np.int32)])
def test_batches_of_similar_windows(lengths):
    """All of a batch have one scene, windows lie side by side, and no window is twice in a batch."""
    data, scenes = in_front_of_scenes(lengths)
    plan = SimilarWindows().plan(data, 6, 5)
    assert plan.near is not None
    assert plan.near.shape == (len(plan.sequence), 9)
    np.testing.assert_array_equal(plan.near[:, 0], np.arange(len(plan.sequence)))
    assert len(plan.sequence) == (48 if lengths is None else 45)
    firsts = []
    for number in range(2):
        order = shuffle(plan, jr.key(0), jnp.int32(number))
        batches = np.asarray(order.items).reshape(plan.batches, plan.batch_size)
        assert all(len(set(items)) == 6 for items in batches)
        assert all(len(set(scenes[plan.sequence[items], plan.slot[items]])) == 1 for items in batches)
        firsts.append(batches)
        batch, sequences = batch_at(data, plan, order, jnp.int32(1))
        for frames, n, slot in zip(batch.modalities["x"].values, sequences, plan.slot[batches[1]], strict=True):
            np.testing.assert_array_equal(frames, data.modalities["x"].values[n, 5 * slot : 5 * slot + 5])
    assert not np.array_equal(*firsts)
    held_out = SimilarWindows().validation(data, 6, 5)
    shown = scenes[held_out.sequence, held_out.slot].reshape(held_out.batches, 6)
    assert (shown == shown[:, :1]).all()


def test_similar_sequences_of_vectors():
    data = Sequences({"x": Modality(np.repeat(np.arange(12.0, dtype=np.float32) % 3, 4).reshape(12, 4, 1))})
    plan = SimilarWindows().plan(data, 2, None)
    assert plan.near is not None
    assert ((plan.near - np.arange(12)[:, None]) % 3 == 0).all()
    unseen = Sequences({"x": Modality(data.modalities["x"].values, np.zeros((12, 4), bool))})
    assert SimilarWindows().plan(unseen, 2, None).near is not None


def test_neighbours_and_pixels_can_be_set():
    data, _ = in_front_of_scenes()
    plan = SimilarWindows(spare=2, side=4).plan(data, 6, 5)
    assert plan.near is not None
    assert plan.near.shape == (48, 12)
    fine, coarse = (SimilarWindows(side=side).plan(data, 6, 5).near for side in (8, 1))
    assert not np.array_equal(fine, coarse), "one pixel shows less than 64"


@pytest.mark.parametrize(
    ("window", "n", "t", "batch_size", "expected"),
    [
        (None, 2, 500, 4, None),
        (50, 2, 500, 4, 50),
        (500, 2, 500, 4, None),  # no longer than the sequences
        ("auto", 16, 500, 32, None),  # sequences enough
        ("auto", 15, 500, 32, 100),  # 7500 frames: 234 for each place in a batch
        ("auto", 4, 500, 4, None),
        ("auto", 3, 500, 32, 46),
        ("auto", 1, 500, 32, 20),  # 15, but windows have 20 frames at least
        ("auto", 1, 20, 32, None),
    ],
)
def test_how_long_windows_are(window, n, t, batch_size, expected):
    assert window_for(window, numbered(n, t), batch_size) == expected


def test_windows_are_as_long_as_frames_without_padding_allow():
    assert window_for("auto", numbered(3, 1000, [1000, 200, 80]), 32) == 1280 // 32
