"""NWB files, written by pynwb as laboratories write them, and binned by hand here."""

import datetime

import numpy as np
import pytest

from rpgssm.data import as_sequences, read

pynwb = pytest.importorskip("pynwb")
from pynwb import NWBHDF5IO, NWBFile, TimeSeries  # noqa: E402
from pynwb.behavior import Position, SpatialSeries  # noqa: E402

RATE, SAMPLES = 10.0, 60  # of the lick sensor: 0.1 s apart
TRACKED = 0.05 + np.arange(30) * 0.2  # when the position was seen


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(0)
    return {
        "lick": rng.integers(-100, 100, SAMPLES).astype(np.int16),
        "pressure": rng.normal(size=(SAMPLES, 3)),
        "position": np.where(np.arange(30)[:, None] == 7, np.nan, rng.normal(size=(30, 2))),
        "units": [np.sort(rng.uniform(0, 6, n)) for n in (40, 25, 1)],
    }


@pytest.fixture(scope="module")
def path(arrays, tmp_path_factory):
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    file = NWBFile(session_description="test", identifier="1", session_start_time=start)
    clock = {"starting_time": 0.0, "rate": RATE, "unit": "V"}
    file.add_acquisition(TimeSeries(name="lick", data=arrays["lick"], conversion=0.01, offset=1.0, **clock))
    file.add_acquisition(TimeSeries(name="pressure", data=arrays["pressure"], **clock))
    seen = SpatialSeries(name="nose", data=arrays["position"], timestamps=TRACKED, reference_frame="corner", unit="m")
    module = file.create_processing_module(name="behavior", description="what the animal does")
    module.add(Position(spatial_series=seen))
    for times in arrays["units"]:
        file.add_unit(spike_times=times)
    for start_time, stop_time in ((0.5, 2.0), (3.0, 5.2)):
        file.add_trial(start_time=start_time, stop_time=stop_time)
    where = tmp_path_factory.mktemp("nwb") / "session.nwb"
    with NWBHDF5IO(str(where), "w") as io:
        io.write(file)
    return where


def test_series_with_one_clock(path, arrays):
    data = read(path, key=["lick", "pressure"]).data
    np.testing.assert_array_equal(data["pressure"], arrays["pressure"][None])
    np.testing.assert_allclose(data["lick"][0, :, 0], arrays["lick"] * 0.01 + 1, rtol=1e-6)
    sequences, _ = as_sequences(read(path, key="pressure"))
    assert sequences.frame_shapes == {"pressure": (3,)}


def test_bins(path, arrays):
    data = read(path, bin_seconds=0.5).data
    assert sorted(data) == ["lick", "nose", "pressure", "spikes"]
    start = max(0.05, min(t.min() for t in arrays["units"]))
    stop = min(6.0, TRACKED[-1] + 0.2, max(t.max() for t in arrays["units"]))
    count = int((stop - start) / 0.5)
    clock = np.arange(SAMPLES) / RATE
    for n in range(count):
        low, high = start + 0.5 * n, start + 0.5 * (n + 1)
        inside = (clock >= low) & (clock < high)
        np.testing.assert_allclose(data["pressure"][0][n], arrays["pressure"][inside].mean(0), rtol=1e-5)
        inside = (TRACKED >= low) & (TRACKED < high) & (np.arange(30) != 7)
        np.testing.assert_allclose(data["nose"][0][n], arrays["position"][inside].mean(0), rtol=1e-5)
        fired = [((times >= low) & (times < high)).sum() for times in arrays["units"]]
        np.testing.assert_array_equal(data["spikes"][0][n], fired)
    assert len(data["spikes"][0]) == count


def test_bins_without_samples_are_missing(path):
    data = read(path, key="nose", bin_seconds=0.1).data["nose"][0]
    assert np.isnan(data[1::2]).all()
    sequences, _ = as_sequences(read(path, key=["nose", "lick"], bin_seconds=0.1))
    assert sequences.modalities["lick"].mask is None or sequences.modalities["lick"].mask.all()
    assert 0.4 < sequences.modalities["nose"].mask.mean() < 0.5


def test_trials(path, arrays):
    data = read(path, key=["spikes", "pressure"], bin_seconds=0.5, trials=True).data
    assert [len(x) for x in data["spikes"]] == [3, 4]
    inside = arrays["units"][0]
    assert data["spikes"][1][0, 0] == ((inside >= 3) & (inside < 3.5)).sum()
    data = read(path, key="pressure", trials=True).data
    np.testing.assert_array_equal(data["pressure"][1], arrays["pressure"][30:52])
    sequences, _ = as_sequences(read(path, key="pressure", trials=True))
    assert sequences.lengths is not None
    assert sequences.lengths.tolist() == [15, 22]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, r"spikes of .*are events: count them in bins.*lick, nose, pressure"),
        ({"key": ["lick", "nose"]}, r"'lick' and 'nose' .*not sampled at the same times.*60 samples.*bin_seconds"),
        ({"key": "wheel"}, r"no series 'wheel': it has lick, nose, pressure, spikes"),
        ({"bin_seconds": -1.0}, r"bin_seconds is -1.0"),
        ({"bin_seconds": 100.0}, r"has 0 frames, and needs 2"),
        ({"key": "lick", "bin_seconds": 1.5, "trials": True}, r"trial 0 of .* has 1 frames, and needs 2"),
    ],
)
def test_errors(path, settings, message):
    with pytest.raises(ValueError, match=message):
        read(path, **settings)


def test_not_nwb(tmp_path, path):
    (tmp_path / "x.nwb").write_bytes(b"nothing")
    with pytest.raises(ValueError, match="cannot be read as NWB"):
        read(tmp_path / "x.nwb")
    np.save(tmp_path / "x.npy", np.zeros((2, 3, 4)))
    with pytest.raises(ValueError, match="are for NWB files"):
        read(tmp_path / "x.npy", bin_seconds=0.1)


def test_no_trials(tmp_path):
    start = datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC)
    file = NWBFile(session_description="test", identifier="1", session_start_time=start)
    with NWBHDF5IO(str(tmp_path / "empty.nwb"), "w") as io:
        io.write(file)
    with pytest.raises(ValueError, match="holds no time series of numbers, and no spikes"):
        read(tmp_path / "empty.nwb")
    file = NWBFile(session_description="test", identifier="1", session_start_time=start)
    file.add_acquisition(TimeSeries(name="lick", data=np.zeros(9), rate=1.0, unit="V"))
    with NWBHDF5IO(str(tmp_path / "lick.nwb"), "w") as io:
        io.write(file)
    with pytest.raises(ValueError, match="no table of trials"):
        read(tmp_path / "lick.nwb", trials=True)
