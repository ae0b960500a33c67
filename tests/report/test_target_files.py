import numpy as np
import pytest

from rpgssm.report.target_files import read_targets


def test_arrays_by_name(tmp_path):
    x, y = np.arange(6.0).reshape(2, 3), np.arange(3)
    np.savez(tmp_path / "both.npz", speed=x, angle=x + 1)
    np.save(tmp_path / "height.npy", y)
    found = read_targets(tmp_path / "both.npz")
    assert list(found) == ["speed", "angle"]
    np.testing.assert_array_equal(found["angle"], x + 1)
    assert list(read_targets(tmp_path / "both.npz", ["angle"])) == ["angle"]
    np.testing.assert_array_equal(read_targets(tmp_path / "height.npy")["height"], y)


def test_a_table_of_one_recording(tmp_path):
    (tmp_path / "t.csv").write_text("speed, angle\n1,2\n3,\n5.5,-1e3\n", encoding="utf-8")
    found = read_targets(tmp_path / "t.csv")
    np.testing.assert_array_equal(found["speed"], [1, 3, 5.5])
    np.testing.assert_array_equal(found["angle"], [2, np.nan, -1000])
    assert list(read_targets(tmp_path / "t.csv", ["angle"])) == ["angle"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "holds no table"),
        ("a,b\n", "holds no table"),
        ("a,b\n1\n", "1 cells in line 2, but 2 names"),
        ("a,b\n1,2\n1,fast\n", "'fast' in line 3, column 'b'"),
    ],
)
def test_bad_tables_are_explained(tmp_path, text, message):
    (tmp_path / "t.csv").write_text(text, encoding="utf-8")
    with pytest.raises(ValueError, match=message):
        read_targets(tmp_path / "t.csv")


def test_what_is_not_there_is_named(tmp_path):
    (tmp_path / "t.csv").write_text("a\n1\n", encoding="utf-8")
    with pytest.raises(ValueError, match="has no column 'b': it has a"):
        read_targets(tmp_path / "t.csv", ["b"])
    with pytest.raises(FileNotFoundError, match="there is no file"):
        read_targets(tmp_path / "none.csv")
