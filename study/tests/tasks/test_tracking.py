import numpy as np
import pytest

from rpgssm_study.tasks import load_task, rat
from rpgssm_study.tasks.tracking import simulate

SMALL = {"n_train": 4, "n_validation": 2, "n_test": 2}


@pytest.fixture(scope="module")
def task():
    return load_task("tracking", **SMALL, cache=False)


def test_standardised_with_the_moments_of_the_training_set(task):
    frames = task.frames(task.train.observations)
    assert task.train.observations.dtype == np.uint8
    assert task.frame_shape == (64, 64, 3)
    assert abs(frames.mean()) < 1e-3
    assert abs(frames.std() - 1) < 1e-3


def test_rat_is_where_it_is_said_to_be(task):
    x = task.train.observations.astype(float)
    place = task.train.targets["position"]
    weight = x[..., 2]  # the disc is white, the arrow red: blue shows what of the disc the arrow leaves
    rows, columns = np.meshgrid(np.arange(64) + 0.5, np.arange(64) + 0.5, indexing="ij")
    seen = (
        np.stack([(weight * columns).sum((2, 3)), (weight * (64 - rows)).sum((2, 3))], -1)
        / weight.sum((2, 3))[..., None]
    )
    inside = ((place > 0.1) & (place < 0.9)).all(-1)
    assert inside.sum() > 50
    assert np.abs(seen - 64 * place)[inside].max() < 1.2


def test_arrow_points_along_the_head(task):
    x = task.train.observations.astype(float)
    place, head = task.train.targets["position"], task.train.targets["head_direction"]
    weight = x[..., 0] - x[..., 2]
    rows, columns = np.meshgrid(np.arange(64) + 0.5, np.arange(64) + 0.5, indexing="ij")
    seen = (
        np.stack([(weight * columns).sum((2, 3)), (weight * (64 - rows)).sum((2, 3))], -1)
        / weight.sum((2, 3))[..., None]
    )
    arm = seen - 64 * place
    inside = ((place > 0.15) & (place < 0.85)).all(-1)
    cosine = (arm * head).sum(-1) / np.linalg.norm(arm, axis=-1)
    assert cosine[inside].min() > 0.99
    assert abs(np.linalg.norm(arm, axis=-1)[inside].mean() - 3.5) < 0.5


def test_angle_is_reported_beside_the_vector(task):
    assert task.secondary == ("head_angle",)
    head, angle = task.train.targets["head_direction"], task.train.targets["head_angle"]
    np.testing.assert_allclose(head, np.concatenate([np.cos(angle), np.sin(angle)], -1), atol=1e-6)


def test_davis_behind_the_rat(data):
    task = load_task("davis-tracking", data_dir=data, **SMALL, cache=False)
    used = task.description["sources"]
    clips = [set(used[f"clips_{split}"]) for split in ("train", "validation", "test")]
    assert all(clips)
    assert not clips[0] & clips[1]
    assert not clips[0] & clips[2]
    assert not clips[1] & clips[2]
    assert task.description["background"] == "davis"
    x = task.train.observations.astype(int)
    change = np.abs(np.diff(x, axis=1)).mean((0, 2, 3, 4))
    assert change[[39, 79]].min() > 2 * np.median(change)  # the clip changes after 40 frames, and not before


def test_pieces_follow_the_clip_and_turn_back_at_its_end(made_files):
    """In the made files the colour tells clip and frame."""
    task = load_task("davis-tracking", data_dir=made_files, n_train=6, n_validation=1, n_test=1, cache=False)
    corner = np.median(task.train.observations[:, :, ::9, ::9].reshape(6, 100, -1, 3), axis=2)
    clip, frame = np.rint(corner[..., 0] / 40), np.rint(corner[..., 2] / 4)
    assert set(np.unique(clip)) <= {0, 1, 2}
    for start, stop in ((0, 40), (40, 80), (80, 100)):
        assert (clip[:, start:stop] == clip[:, start : start + 1]).all()
        assert set(np.unique(np.abs(np.diff(frame[:, start:stop], axis=1)))) == {1}
    assert frame[clip == 0].max() <= 11


def package_rats(n: int, steps: int, seed: int):
    """The package's own agents; it draws from NumPy's global generator, which is put back."""
    pytest.importorskip("ratinabox")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ratinabox.Agent import Agent
        from ratinabox.Environment import Environment

        before = np.random.get_state()  # noqa: NPY002
        try:
            np.random.seed(seed)  # noqa: NPY002
            histories = []
            for _ in range(n):
                agent = Agent(Environment(), {"dt": 0.05})
                for _ in range(steps):
                    agent.update()
                histories.append([agent.history[key] for key in ("pos", "vel", "head_direction")])
        finally:
            np.random.set_state(before)  # noqa: NPY002
    return [np.array([h[i] for h in histories]) for i in range(3)]


def summary(position: np.ndarray, velocity: np.ndarray, head: np.ndarray) -> dict[str, float]:
    speed = np.linalg.norm(velocity, axis=-1)
    heading = np.arctan2(velocity[..., 1], velocity[..., 0])
    turn = np.angle(np.exp(1j * np.diff(heading, axis=1)))
    wall = np.minimum(position, 1 - position).min(-1)

    def kept(x, lag):
        return float((x[:, lag:] * x[:, :-lag]).sum() / (x**2).sum() * x.shape[1] / (x.shape[1] - lag))

    return {
        "speed": speed.mean(),
        "spread of speed": speed.std(),
        "turning": np.median(np.abs(turn)),
        "speed kept for 0.5 s": kept(speed - speed.mean(), 10),
        "velocity kept for 0.5 s": kept(velocity, 10),
        "head turning": np.median(np.arccos(np.clip((head[:, 1:] * head[:, :-1]).sum(-1), -1, 1))),
        "near a wall": (wall < 0.1).mean(),
        "distance walked": np.linalg.norm(position[:, -1] - position[:, 0], axis=-1).mean(),
    }  # fmt: skip


TOLERANCE = {
    "speed": 0.06,
    "spread of speed": 0.08,
    "turning": 0.06,
    "speed kept for 0.5 s": 0.2,
    "velocity kept for 0.5 s": 0.1,
    "head turning": 0.06,
    "near a wall": 0.25,
    "distance walked": 0.12,
}


def compare(n: int, factor: float) -> None:
    theirs = summary(*package_rats(n, 100, seed=1))
    paths = simulate(0, "train", 1000)
    ours = summary(paths.position, paths.velocity, paths.head_direction)
    for name, tolerance in TOLERANCE.items():
        assert ours[name] == pytest.approx(theirs[name], rel=factor * tolerance), name


def test_it_moves_as_the_packages_rats_do():
    compare(25, factor=3)


@pytest.mark.slow
def test_it_moves_as_many_of_the_packages_rats_do():
    compare(600, factor=1.0)


@pytest.mark.parametrize(
    ("start", "direction"), [((0.5, 0.5), 0.3), ((0.03, 0.4), 3.0), ((0.97, 0.98), 0.8), ((0.006, 0.006), 3.9)]
)
def test_given_the_same_noise_it_walks_the_same_path(monkeypatch, start, direction):
    """In the open, along a wall, into a corner: the package's agent, with our noise in place of its random draws."""
    pytest.importorskip("ratinabox")
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ratinabox import utils
        from ratinabox.Agent import Agent
        from ratinabox.Environment import Environment

        noise = np.random.default_rng(5).standard_normal((1, 60, 2))
        agent = Agent(Environment(), {"dt": 0.05})
        agent.pos = np.array(start)
        agent.velocity = 0.08 * np.array([np.cos(direction), np.sin(direction)])
        agent.head_direction = agent.velocity / 0.08
        queue = iter(noise[0].reshape(-1))

        def ornstein_uhlenbeck(dt, x, drift=0.0, noise_scale=0.2, coherence_time=5.0):
            return (drift - x) * dt / coherence_time + np.sqrt(2 * noise_scale**2 * dt / coherence_time) * next(queue)

        monkeypatch.setattr(utils, "ornstein_uhlenbeck", ornstein_uhlenbeck)
        for _ in range(60):
            agent.update()
    ours = rat.walk(np.array([start]), np.array([direction]), noise)
    np.testing.assert_allclose(ours.position[0], np.array(agent.history["pos"]), atol=1e-4)
    np.testing.assert_allclose(ours.head_direction[0], np.array(agent.history["head_direction"]), atol=2e-2)


def test_rats_stay_in_the_box_and_the_global_generator_is_left_alone():
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    paths = simulate(3, "train", 400)
    assert paths.position.min() > 0
    assert paths.position.max() < 1
    np.testing.assert_allclose(np.linalg.norm(paths.head_direction, axis=-1), 1, atol=1e-9)
    assert (np.random.get_state()[1] == before).all()  # noqa: NPY002
