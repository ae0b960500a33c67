"""Eigenvalues of a transition matrix, in words."""

import numpy as np

from rpgssm.estimator import timescales


def test_decay_and_period_are_those_of_the_matrix():
    angle = 2 * np.pi / 25
    turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
    A = np.zeros((4, 4))
    A[:2, :2] = np.exp(-1 / 50) * turn
    A[2, 2], A[3, 3] = np.exp(-1 / 3), 1.0
    assert timescales(A) == [
        "  |λ| = 1.0000: memory none, no oscillation",
        "  |λ| = 0.9802: memory 50.0 frames, period 25.0 frames",
        "  |λ| = 0.7165: memory 3.0 frames, no oscillation",
    ]


def test_long_lists_are_cut():
    lines = timescales(np.diag([0.9, 0.8, 0.7, 0.6]), most=2)
    assert len(lines) == 3
    assert lines[-1] == "  ..."
