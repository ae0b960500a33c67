"""Choose what of a recording a report looks at, and what of it is held out for scores.

Few or long sequences are cut into blocks of equal length, so that there are several to average over. Of data that would
take long, evenly spaced sequences (or blocks) are used. Readouts are fitted on the first ones and scored on the last.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from rpgssm.data import Sequences
from rpgssm.estimator import Estimator
from rpgssm.evaluation.labelled import Part
from rpgssm.evaluation.regression import known

FEW = 4  # sequences, below which they are cut into blocks
BLOCKS = 12  # that a short recording is cut into
SHORTEST, LONGEST, WHOLE = 16, 400, 1000  # frames of a block; of a sequence that is not cut
FRAMES, COVARIANCES, VALUES = 30_000, 6e7, 2e8  # that a report looks at: frames, numbers in covariances and in frames
FITTED = 0.7  # of the sequences, for readouts


@dataclass(frozen=True)
class Arranged:
    """What a report looks at. Readouts are fitted on `train` (None without targets); all else is of `test`.

    `words` say how it was chosen, `names` what each sequence of `test` is, `notes` what was left out. `blocks`: these
    are blocks of a recording, in order.
    """

    train: Part | None
    test: Part
    words: str
    names: tuple[str, ...]
    notes: tuple[str, ...] = ()
    blocks: bool = False


def arrange(model: Estimator, data: Part) -> Arranged:
    """Cut into blocks, thin out and split, as far as it is needed."""
    blocks, words, names, cut = _blocks(data)
    if (most := _most(model, data) // max(1, blocks.time)) < len(blocks):
        chosen = np.unique(np.linspace(0, len(blocks) - 1, max(most, 2)).round().astype(int))
        words += f" To be quick, the report looks at {len(chosen)} of them, evenly spaced."
        blocks, names = blocks.take(chosen), tuple(names[i] for i in chosen)
    if not data.targets:
        return Arranged(None, blocks, words, names, blocks=cut)
    if len(blocks) < 2:
        raise ValueError(
            f"targets are scored on held-out frames, but the only sequence has {data.time} frames: pass at least 2 "
            f"sequences, or {2 * SHORTEST} frames"
        )
    count = int(np.clip(round(FITTED * len(blocks)), 1, len(blocks) - 1))
    order = np.arange(len(blocks))
    train, test, notes = with_useful_targets(blocks.take(order[:count]), blocks.take(order[count:]))
    words += (
        f" Readouts of targets are fitted on the first {count} ({_span(names[:count])}) and scored on the other "
        f"{len(blocks) - count} ({_span(names[count:])})."
    )
    return Arranged(train, test, words, names[count:], notes, cut)


def as_given(train: Part, test: Part) -> Arranged:
    """Training and test sequences as the user chose them."""
    train, test, notes = with_useful_targets(train, test)
    words = f"Readouts of targets are fitted on {len(train)} sequences and scored on {len(test)} others."
    return Arranged(train, test, words, _sequences(len(test)), notes)


def with_useful_targets(train: Part, test: Part) -> tuple[Part, Part, tuple[str, ...]]:
    """The parts without targets that are unknown or constant in one of them, and sentences about those."""
    notes, kept = [], []
    for name in test.targets:
        values = [y[known(y)] for y in (train.targets[name], test.targets[name])]
        if min(map(len, values)) < 2:
            notes.append(f"The target {name!r} is left out: it is known in too few frames.")
        elif any((y == y[0]).all(0).any() for y in values):
            notes.append(f"The target {name!r} is left out: a part of it is constant, so R² has no meaning.")
        else:
            kept.append(name)
    first, second = (Part(p.observations, {name: p.targets[name] for name in kept}) for p in (train, test))
    return first, second, tuple(notes)


def context_of(data: Part) -> tuple[int, int]:
    """Frames to forecast from, and frames to forecast: for half of the sequences both exist."""
    typical = max(2, int(np.median(data.lengths)))
    horizon = min(typical - typical // 2, 100)
    return typical - horizon, horizon


def _most(model: Estimator, data: Part) -> int:
    """Frames that a report can look at in seconds."""
    frames = data.observations
    assert isinstance(frames, Sequences)
    size = sum(int(np.prod(shape)) for shape in frames.frame_shapes.values())
    return int(min(FRAMES, COVARIANCES / max(1, model.model_.latent_dim) ** 2, VALUES / max(1, size)))


def _blocks(data: Part) -> tuple[Part, str, tuple[str, ...], bool]:
    """Sequences of a size to look at, what was done, what each is, and whether they are blocks."""
    count, lengths = len(data), data.lengths
    total, longest = int(lengths.sum()), int(lengths.max())
    size = int(np.clip(total // BLOCKS, SHORTEST, LONGEST))
    starts = [(n, start) for n in range(count) for start in range(0, int(lengths[n]) - size + 1, size)]
    if (count >= FEW and longest <= WHOLE) or len(starts) <= count:
        words = f"{count} sequences." if count > 1 else f"One sequence of {longest} frames."
        return data, words, _sequences(count), False
    which, first = (np.array(x) for x in zip(*starts, strict=True))
    what = f"The recording of {total} frames is" if count == 1 else f"The {count} sequences are"
    words = f"{what} cut into {len(starts)} blocks of {size} frames, and each is looked at by itself."
    names = tuple(f"frames {t}–{t + size - 1}" + (f" of sequence {n}" if count > 1 else "") for n, t in starts)
    return data.windows(which, first, size), words, names, True


def _sequences(count: int) -> tuple[str, ...]:
    return tuple(f"sequence {n}" for n in range(count))


def _span(names: Sequence[str]) -> str:
    if len(names) == 1:
        return names[0]
    if not names[0].startswith("frames") or " of " in names[0]:
        return f"{names[0]} to {names[-1]}"
    return f"{names[0].split('–')[0]}–{names[-1].split('–')[1]}"
