"""Small files of every kind, written here and read back; and files that cannot be read."""

import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from rpgssm.data import as_sequences, read, readers
from rpgssm.data.readers import natural

RNG = np.random.default_rng(0)
GREY = RNG.integers(0, 255, (4, 8, 10)).astype(np.uint8)
COLOUR = RNG.integers(0, 255, (4, 8, 10, 3)).astype(np.uint8)
SPEED = RNG.standard_normal((2, 5, 1)).astype(np.float32)
PLACE = RNG.standard_normal((2, 5, 2)).astype(np.float32)
MASK = np.array([[1, 1, 1, 0, 1], [1, 1, 1, 1, 1]], bool)
CONTROLS = RNG.integers(0, 3, (2, 5))
LENGTHS = np.array([5, 3])
ARRAYS = {"speed": SPEED, "eye/place": PLACE, "mask": MASK, "controls": CONTROLS, "lengths": LENGTHS}


def same(found, expected):
    np.testing.assert_array_equal(found, expected)
    assert found.dtype == expected.dtype


# ---------------------------------------------------------------------------------------------------------------------
# NumPy


def test_npy(tmp_path, monkeypatch):
    path = tmp_path / "a.npy"
    np.save(path, SPEED)
    recording = read(path)
    same(recording.data, SPEED)
    assert recording.mask is recording.controls is recording.lengths is None
    assert not isinstance(recording.data, np.memmap)
    monkeypatch.setattr(readers, "LARGE", 10)
    mapped = read(str(path)).data
    assert isinstance(mapped, np.memmap)
    same(mapped, SPEED)
    sequences, _ = as_sequences(mapped)
    same(sequences.modalities["observations"].values, SPEED)


def test_objects_in_numpy_files_are_not_unpickled(tmp_path):
    objects = np.array([{"a": 1}], dtype=object)
    np.save(tmp_path / "a.npy", objects, allow_pickle=True)
    with pytest.raises(ValueError, match=r"a.npy cannot be read as .npy: .*allow_pickle"):
        read(tmp_path / "a.npy")
    np.savez(tmp_path / "a.npz", x=objects)
    with pytest.raises(ValueError, match=r"the array 'x' of .*a.npz cannot be read: .*allow_pickle"):
        read(tmp_path / "a.npz")


@pytest.mark.parametrize("suffix", [".npy", ".npz"])
@pytest.mark.parametrize("content", [b"", b"no array at all", b"PK\x03\x04 broken"])
def test_broken_numpy_files(tmp_path, suffix, content):
    path = tmp_path / f"broken{suffix}"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=f"cannot be read as {suffix}"):
        read(path)


def test_npz_by_another_name(tmp_path):
    np.savez(tmp_path / "a.npz", SPEED)
    (tmp_path / "a.npz").rename(tmp_path / "a.npy")
    with pytest.raises(ValueError, match=r"cannot be read as .npy"):
        read(tmp_path / "a.npy")
    (tmp_path / "b.npz").write_bytes((tmp_path / "a.npy").read_bytes()[:-1])
    with pytest.raises(ValueError, match=r"cannot be read as .npz"):
        read(tmp_path / "b.npz")


def test_one_nameless_array(tmp_path):
    np.savez(tmp_path / "a.npz", SPEED, controls=CONTROLS)
    recording = read(tmp_path / "a.npz")
    same(recording.data, SPEED)
    same(recording.controls, CONTROLS)


# ---------------------------------------------------------------------------------------------------------------------
# named arrays, in three kinds of files


def write_npz(path: Path) -> Path:
    np.savez(path.with_suffix(".npz"), **ARRAYS)
    return path.with_suffix(".npz")


def write_hdf5(path: Path) -> Path:
    h5py = pytest.importorskip("h5py")
    with h5py.File(path.with_suffix(".h5"), "w") as file:
        for name, value in ARRAYS.items():
            file[name] = value
        file["comment"] = "text is left out"
        file["rate"] = 30.0
    return path.with_suffix(".h5")


def write_zarr(path: Path) -> Path:
    zarr = pytest.importorskip("zarr")
    root = zarr.open_group(str(path.with_suffix(".zarr")), mode="w")
    eye = root.create_group("eye")
    for name, value in ARRAYS.items():
        group, _, last = name.rpartition("/")
        (eye if group else root)[last] = value
    return path.with_suffix(".zarr")


WRITERS = pytest.mark.parametrize("write", [write_npz, write_hdf5, write_zarr])


@WRITERS
def test_named_arrays(tmp_path, write):
    recording = read(write(tmp_path / "data"))
    assert set(recording.data) == {"speed", "eye/place"}
    same(recording.data["speed"], SPEED)
    same(recording.data["eye/place"], PLACE)
    same(np.asarray(recording.mask), MASK)
    same(recording.controls, CONTROLS)
    same(recording.lengths, LENGTHS)
    sequences, _ = as_sequences(recording)
    np.testing.assert_array_equal(sequences.lengths, LENGTHS)
    np.testing.assert_array_equal(sequences.modalities["speed"].mask, MASK & (np.arange(5) < LENGTHS[:, None]))
    np.testing.assert_array_equal(sequences.controls[0], CONTROLS[0])


@WRITERS
def test_chosen_arrays(tmp_path, write):
    path = write(tmp_path / "data")
    one = read(path, key="speed")
    assert set(one.data) == {"speed"}
    same(one.controls, CONTROLS)
    group = read(path, key="eye")
    assert set(group.data) == {"place"}
    same(group.data["place"], PLACE)
    assert set(read(path, key=["eye/place", "speed"]).data) == {"eye/place", "speed"}
    special = read(path, key="controls")
    assert set(special.data) == {"controls"}
    assert special.controls is None
    with pytest.raises(ValueError, match="has no array 'sped': it has controls, eye/place, lengths, mask, speed"):
        read(path, key="sped")


def test_special_names_in_a_group(tmp_path):
    np.savez(tmp_path / "a.npz", **{"one/x": SPEED, "one/controls": CONTROLS, "two/x": PLACE, "mask": MASK})
    recording = read(tmp_path / "a.npz", key="one")
    assert set(recording.data) == {"x"}
    same(recording.controls, CONTROLS)
    same(recording.mask, MASK)


def test_files_without_observations(tmp_path):
    np.savez(tmp_path / "a.npz", mask=MASK)
    with pytest.raises(ValueError, match="has only mask, which are no observations"):
        read(tmp_path / "a.npz")
    np.savez(tmp_path / "b.npz")
    with pytest.raises(ValueError, match="holds no arrays"):
        read(tmp_path / "b.npz")


def test_broken_hdf5(tmp_path):
    pytest.importorskip("h5py")
    (tmp_path / "a.h5").write_bytes(b"no HDF5")
    with pytest.raises(ValueError, match=r"a.h5 cannot be read as HDF5"):
        read(tmp_path / "a.h5")


def test_zarr_array_and_folder_of_any_name(tmp_path):
    zarr = pytest.importorskip("zarr")
    zarr.save_array(str(tmp_path / "plain"), SPEED)
    same(read(tmp_path / "plain").data, SPEED)


@pytest.mark.parametrize("version", [2, 3])
def test_both_zarr_formats(tmp_path, version):
    zarr = pytest.importorskip("zarr", minversion="3")
    root = zarr.open_group(str(tmp_path / "a.zarr"), mode="w", zarr_format=version)
    root["speed"] = SPEED
    assert (tmp_path / "a.zarr" / ("zarr.json" if version == 3 else ".zgroup")).exists()
    same(read(tmp_path / "a.zarr").data["speed"], SPEED)


def test_broken_zarr(tmp_path):
    pytest.importorskip("zarr")
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(ValueError, match=r"a.zarr cannot be read as Zarr"):
        read(tmp_path / "a.zarr")


# ---------------------------------------------------------------------------------------------------------------------
# images


def write_images(folder, frames, suffix=".png"):
    folder.mkdir(parents=True, exist_ok=True)
    for t, frame in enumerate(frames):
        Image.fromarray(frame).save(folder / f"frame{t + 8}{suffix}")  # 8, 9, 10, 11
    return folder


@pytest.mark.parametrize("suffix", [".png", ".tif", ".bmp"])
@pytest.mark.parametrize("frames", [GREY, COLOUR], ids=["grey", "colour"])
def test_folder_of_images(tmp_path, frames, suffix):
    (video,) = read(write_images(tmp_path, frames, suffix)).data
    same(video, frames)
    sequences, notes = as_sequences(read(tmp_path))
    assert sequences.modalities["observations"].values.shape == (1, *frames.shape)
    assert notes == ["data: uint8 images are scaled by 1/255, to values between 0 and 1"]


def test_every_second_image(tmp_path):
    same(read(write_images(tmp_path, GREY), every=2).data[0], GREY[::2])


def test_images_converted_and_resized(tmp_path):
    (grey,) = read(write_images(tmp_path, COLOUR), grey=True).data
    np.testing.assert_allclose(grey, COLOUR @ [0.299, 0.587, 0.114], atol=1)
    assert read(tmp_path, size=(4, 5)).data[0].shape == (4, 4, 5, 3)
    (colour,) = read(write_images(tmp_path / "more", GREY), grey=False).data
    same(colour, np.repeat(GREY[..., None], 3, -1))


def test_deep_images_and_transparent_ones(tmp_path):
    deep = (GREY.astype(np.uint16) + 1) * 200
    same(read(write_images(tmp_path / "deep", deep)).data[0], deep)
    transparent = np.concatenate([COLOUR, np.full((4, 8, 10, 1), 255, np.uint8)], -1)
    same(read(write_images(tmp_path / "transparent", transparent)).data[0], COLOUR)
    real = GREY.astype(np.float32) / 7
    same(read(write_images(tmp_path / "real", real, ".tif")).data[0], real)


def test_folders_of_images_are_sequences(tmp_path):
    write_images(tmp_path / "run10", GREY)
    write_images(tmp_path / "run9", GREY[:2])
    (tmp_path / "notes.txt").write_text("other files are left alone")
    first, second = read(tmp_path).data
    same(first, GREY[:2])
    same(second, GREY)
    np.testing.assert_array_equal(as_sequences([first, second])[0].lengths, [2, 4])


def test_images_of_different_sizes(tmp_path):
    write_images(tmp_path, GREY)
    Image.fromarray(GREY[0, :4]).save(tmp_path / "frame99.png")
    with pytest.raises(ValueError, match=r"frame99.png has shape \(4, 10\) but .*frame8.png has shape \(8, 10\)"):
        read(tmp_path)
    assert read(tmp_path, size=(8, 10)).data[0].shape == (5, 8, 10)


def test_broken_image(tmp_path):
    (tmp_path / "a.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"a.png cannot be read as an image"):
        read(tmp_path)


def test_natural_order():
    names = ["frame10.png", "frame9.png", "frame1.png", "a2b10", "a2b9", "A1", "2", "10"]
    ordered = [p.name for p in sorted(map(Path, names), key=natural)]
    assert ordered == ["2", "10", "A1", "a2b9", "a2b10", "frame1.png", "frame9.png", "frame10.png"]


# ---------------------------------------------------------------------------------------------------------------------
# videos


def write_video(path, frames, codec="ffv1", pixels=None):
    av = pytest.importorskip("av")
    grey = frames.ndim == 3
    with av.open(str(path), "w") as container:
        stream = container.add_stream(codec, rate=10)
        stream.height, stream.width = frames.shape[1:3]
        stream.pix_fmt = pixels or ("gray" if grey else "bgr0")
        for frame in frames:
            picture = av.VideoFrame.from_ndarray(frame, format="gray" if grey else "rgb24")
            for packet in stream.encode(picture.reformat(format=stream.pix_fmt)):
                container.mux(packet)
        for packet in stream.encode():
            container.mux(packet)
    return path


@pytest.mark.parametrize("suffix", [".mkv", ".avi"])
@pytest.mark.parametrize("frames", [GREY, COLOUR], ids=["grey", "colour"])
def test_lossless_video(tmp_path, frames, suffix):
    path = write_video(tmp_path / f"a{suffix}", frames)
    (video,) = read(path).data
    same(video, frames)
    same(read(path, every=3).data[0], frames[::3])
    assert as_sequences(read(path))[0].modalities["observations"].values.shape == (1, *frames.shape)


@pytest.mark.parametrize("suffix", [".mp4", ".mov"])
def test_compressed_video(tmp_path, suffix):
    frames = np.full((5, 32, 48, 3), [200, 100, 50], np.uint8)
    path = write_video(tmp_path / f"a{suffix}", frames, "mpeg4", "yuv420p")
    (video,) = read(path).data
    assert video.shape == frames.shape
    np.testing.assert_allclose(video.astype(float), frames, atol=6)
    (small,) = read(path, grey=True, size=(16, 24)).data
    assert small.shape == (5, 16, 24)
    assert small.dtype == np.uint8
    np.testing.assert_allclose(small, 0.299 * 200 + 0.587 * 100 + 0.114 * 50, atol=8)


def test_folder_of_videos(tmp_path):
    write_video(tmp_path / "b10.mkv", GREY)
    write_video(tmp_path / "b2.mkv", GREY[:3])
    first, second = read(tmp_path).data
    same(first, GREY[:3])
    same(second, GREY)


def test_broken_video(tmp_path):
    pytest.importorskip("av")
    (tmp_path / "a.mp4").write_bytes(b"no video")
    with pytest.raises(ValueError, match=r"a.mp4 cannot be read as a video"):
        read(tmp_path / "a.mp4")


# ---------------------------------------------------------------------------------------------------------------------
# everything else


def test_folder_of_arrays(tmp_path):
    np.save(tmp_path / "b10.npy", PLACE[0])
    np.save(tmp_path / "b2.npy", PLACE[1, :3])
    sequences, _ = as_sequences(read(tmp_path))
    np.testing.assert_array_equal(sequences.lengths, [3, 5])
    np.testing.assert_array_equal(sequences.modalities["observations"].values[1], PLACE[0])


@pytest.mark.parametrize(
    ("suffix", "package", "extra"), [(".h5", "h5py", "neuro"), (".nwb", "pynwb", "neuro"), (".mp4", "av", "video")]
)
def test_missing_packages_are_named(tmp_path, monkeypatch, suffix, package, extra):
    monkeypatch.setitem(sys.modules, package, None)
    (tmp_path / f"a{suffix}").touch()
    with pytest.raises(ImportError, match=rf'needs the package {package}: pip install "rpgssm\[{extra}\]"'):
        read(tmp_path / f"a{suffix}")


def test_missing_zarr_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    (tmp_path / "a.zarr").mkdir()
    with pytest.raises(ImportError, match=r'pip install "rpgssm\[zarr\]"'):
        read(tmp_path / "a.zarr")


def test_what_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no file or folder .*a.npy"):
        read(tmp_path / "a.npy")


def test_unknown_files_and_folders(tmp_path):
    (tmp_path / "a.xyz").touch()
    with pytest.raises(ValueError, match=r"a.xyz is of no known kind: DATA can be .npy, .npz, .h5, .hdf5, .nwb, .mp4"):
        read(tmp_path / "a.xyz")
    with pytest.raises(ValueError, match="holds nothing that can be read: DATA can be"):
        read(tmp_path)
    np.save(tmp_path / "a.npy", SPEED)
    write_images(tmp_path, GREY)
    with pytest.raises(ValueError, match=r"holds images and .npy files: keep one kind"):
        read(tmp_path)


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"every": 0}, "every is 0"), ({"size": (0, 3)}, "size is"), ({"key": "x"}, "no named arrays to choose 'x'")],
)
def test_wrong_settings(tmp_path, settings, message):
    np.save(tmp_path / "a.npy", SPEED)
    with pytest.raises(ValueError, match=message):
        read(tmp_path / "a.npy", **settings)
