import json
from dataclasses import dataclass

import numpy as np
import pytest
from PIL import Image

from rpgssm.datasets.drawing import resized_bar
from rpgssm.evaluation import collect
from rpgssm_study.evaluation import evaluate, linear_ceiling
from rpgssm_study.tasks import background_variants, load_task


@dataclass
class Marginals:
    mean: np.ndarray
    cov: np.ndarray | None


class Kalman:
    """The exact filter, smoother and forecaster of a linear task, written as the textbook has them."""

    def __init__(self, task):
        self.p = task.parameters
        self.k = self.p["B"].shape[0]

    def _filter(self, x):
        B, Q, C, R = (self.p[name] for name in "BQCR")
        n, T = x.shape[:2]
        means, covs = np.empty((n, T, self.k)), np.empty((T, self.k, self.k))
        m, P = np.zeros((n, self.k)), np.eye(self.k)
        for t in range(T):
            if t:
                m, P = m @ B.T, B @ P @ B.T + Q
            G = P @ C.T @ np.linalg.inv(C @ P @ C.T + R)
            m = m + (x[:, t] - self.p["d"] - m @ C.T) @ G.T
            P = P - G @ C @ P
            means[:, t], covs[t] = m, P
        return means, covs

    def filter(self, x):
        means, covs = self._filter(x)
        return Marginals(means, covs[None])

    def smooth(self, x):
        B, Q = self.p["B"], self.p["Q"]
        means, covs = self._filter(x)
        for t in range(x.shape[1] - 2, -1, -1):
            ahead = B @ covs[t] @ B.T + Q
            J = covs[t] @ B.T @ np.linalg.inv(ahead)
            means[:, t] += (means[:, t + 1] - means[:, t] @ B.T) @ J.T
            covs[t] = covs[t] + J @ (covs[t + 1] - ahead) @ J.T
        return Marginals(means, covs[None])

    def forecast(self, x, steps):
        means, covs = self._filter(x)
        m, P, out, spread = means[:, -1], covs[-1], [], []
        for _ in range(steps):
            m, P = m @ self.p["B"].T, self.p["B"] @ P @ self.p["B"].T + self.p["Q"]
            out.append(m)
            spread.append(P)
        return Marginals(np.stack(out, 1), np.stack(spread)[None])


@pytest.fixture(scope="module")
def linear():
    task = load_task("linear-small", n_test=120, cache=False)
    return task, evaluate(Kalman(task), task)


def test_the_exact_model_reaches_the_ceiling(linear):
    task, evaluation = linear
    s = evaluation.scores
    assert s["linear"]["z"] == pytest.approx(linear_ceiling(task)["z"], abs=1e-9)
    assert s["ceiling"]["z"] == pytest.approx(s["linear"]["z"], abs=1e-9)
    assert s["kernel"]["z"] == pytest.approx(s["linear"]["z"], abs=0.02)
    assert s["filtering"]["z"] < s["linear"]["z"]
    curve = np.array(s["forecast"]["r_squared"]["z"])
    assert len(curve) == 50
    np.testing.assert_allclose(curve[:10], (s["filtering"]["z"] * 0.95 ** (2 * np.arange(1, 11))), atol=0.08)
    covered = np.array(s["forecast"]["coverage"]["z"]["90%"])
    assert covered.mean() == pytest.approx(0.9, abs=0.02)
    assert s["calibration"]["posterior"]["z"]["coverage"]["50%"] == pytest.approx(0.5, abs=0.03)


def test_json_table_and_figures(linear, tmp_path):
    _, evaluation = linear
    text = evaluation.to_json(tmp_path / "new" / "scores.json")
    assert json.loads(text) == json.loads((tmp_path / "new" / "scores.json").read_text(encoding="utf-8"))
    assert json.loads(text)["task"]["task"] == "linear-small"
    lines = evaluation.table().splitlines()
    assert lines[0].startswith("linear-small (seed 0, background: none; 200 train, 50 validation, 120 test), K = 3")
    assert f"{evaluation.scores['linear']['z']:.3f}" in lines[3]
    assert lines[3].startswith("z ")
    assert lines[4].startswith("mean ")
    paths = evaluation.figures(tmp_path / "figures")
    assert [p.name for p in paths] == ["trajectories.png", "forecast.png", "calibration.png"]
    for path in paths:
        picture = np.asarray(Image.open(path).convert("RGB")).astype(int)
        assert (np.ptp(picture, axis=-1) > 60).mean() > 1e-3


class Looker:
    """A model that gives a representation and nothing else."""

    def smooth(self, x):
        return Marginals(x[..., :3], None)


def test_what_a_model_cannot_do_is_left_out(tmp_path):
    task = load_task("linear-small", n_test=10, cache=False)
    evaluation = evaluate(Looker(), task)
    assert evaluation.scores["filtering"] is None
    assert evaluation.scores["forecast"] is None
    assert 0 < evaluation.scores["linear"]["z"] < 1
    assert "frames" not in evaluation.table()
    assert [p.name for p in evaluation.figures(tmp_path)] == ["trajectories.png"]
    json.loads(evaluation.to_json())


class Template:
    """A model for images without uncertainty: the arm whose pixels are all bright, and the frame's brightness."""

    def __init__(self):
        self.angles = np.linspace(-np.pi, np.pi, 120, endpoint=False)
        arms = resized_bar(self.angles).reshape(120, -1)
        self.arms = arms / (arms**2).sum(1, keepdims=True)

    def smooth(self, x):
        x = x.reshape(*x.shape[:2], -1) / 255
        angle = self.angles[(x**6 @ self.arms.T).argmax(-1)]  # the power leaves only what is nearly white
        return Marginals(np.stack([np.sin(angle), np.cos(angle), x.mean(-1)], -1), None)

    filter = smooth

    def forecast(self, x, steps):
        return Marginals(np.repeat(self.smooth(x).mean[:, -1:], steps, 1), None)


def test_a_model_without_covariances_on_images_with_backgrounds():
    sizes = {"n_train": 12, "n_validation": 1, "n_test": 8}
    task = load_task("cifar10-pendulum", background="procedural", **sizes, cache=False)
    variants = background_variants("cifar10-pendulum", background="procedural", n=4)
    evaluation = evaluate(Template(), task, variants=variants, batch=5)
    s = evaluation.scores
    assert s["linear"]["sin_angle"] > 0.7
    assert s["linear"]["mean"] == pytest.approx((s["linear"]["sin_angle"] + s["linear"]["velocity"]) / 2)
    assert "calibration" not in s
    assert s["robustness"]["variants"] == 5
    assert s["robustness"]["targets"]["sin_angle"] < 0.25 < s["robustness"]["latents"]
    assert s["ceiling"]["velocity"] > 0.99
    assert "spread over 5 backgrounds" in evaluation.table()
    assert s["task"]["background"] == "procedural"
    json.loads(evaluation.to_json())


class Rat:
    """Knows the truth of a tracking task, in other coordinates."""

    def __init__(self, task):
        self.known = {}
        for split in task.splits.values():
            z = np.concatenate([split.targets[name] for name in ("position", "velocity", "head_direction")], -1)
            self.known |= {x[0].tobytes(): row for x, row in zip(split.observations, z, strict=True)}
        self.mix = np.random.default_rng(0).standard_normal((6, 6))

    def smooth(self, x):
        z = np.stack([self.known[row[0].tobytes()] for row in x])[:, : x.shape[1]]
        return Marginals(z @ self.mix, np.eye(6)[None, None].repeat(x.shape[1], 1) * 1e-4)

    filter = smooth

    def forecast(self, x, steps):
        z = np.stack([self.known[row[0].tobytes()] for row in x])[:, x.shape[1] : x.shape[1] + steps]
        return Marginals(z @ self.mix, np.eye(6)[None, None].repeat(steps, 1) * 1e-4)


def test_groups_of_targets_count_once_and_angles_beside_them():
    task = load_task("tracking", n_train=12, n_validation=1, n_test=6, cache=False)
    s = evaluate(Rat(task), task).scores
    for name in ("position", "velocity", "head_direction", "mean"):
        assert s["linear"][name] == pytest.approx(1, abs=1e-6)
    assert s["linear"]["head_angle"] < 0.9  # it jumps: no linear readout follows, and it does not count in the mean
    assert s["head_angle_error_degrees"] < 0.1
    assert s["ceiling"] is None


def test_what_the_model_is_shown():
    """Observations as stored, or prepared, a batch at a time."""
    seen = []

    class Spy:
        def smooth(self, x):
            seen.append((len(x), x.dtype))
            return Marginals(x.reshape(*x.shape[:2], -1)[..., :2].astype(float), None)

        filter = smooth

        def forecast(self, x, steps):
            return Marginals(np.repeat(self.smooth(x).mean[:, -1:], steps, 1), None)

    sizes = {"n_train": 5, "n_validation": 1, "n_test": 3}
    task = load_task("cifar10-pendulum", background="procedural", **sizes, cache=False)
    evaluate(Spy(), task, batch=2, context=10, horizon=3)
    assert seen[:5] == [(2, np.uint8), (2, np.uint8), (1, np.uint8), (2, np.uint8), (1, np.uint8)]
    seen.clear()
    evaluate(Spy(), task, prepare=task.frames, context=10, horizon=3)
    assert {dtype for _, dtype in seen} == {np.dtype(np.float32)}
    with pytest.raises(ValueError, match="do not fit into sequences of 100 frames"):
        evaluate(Spy(), task, context=60, horizon=50)


def test_bad_output_is_named():
    x = np.zeros((4, 5, 2))
    bad = np.zeros((4, 5, 1))
    bad[3, 2] = np.nan
    with pytest.raises(ValueError, match="sequence 3 from frame 2 on"):
        collect(lambda part: Marginals(bad, None), x)
    with pytest.raises(ValueError, match=r"shape \(4, 5\)"):
        collect(lambda part: Marginals(bad[..., 0], None), x)
