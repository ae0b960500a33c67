"""A video file as an array of frames: (T, H, W) if it is grey, else (T, H, W, 3), 8 bits each."""

from pathlib import Path

import numpy as np
from jaxtyping import UInt8
from numpy import ndarray

VIDEOS = (".mp4", ".avi", ".mov", ".mkv")


def read_video(
    path: Path, *, grey: bool | None = None, size: tuple[int, int] | None = None, every: int = 1
) -> UInt8[ndarray, "t h w *c"]:
    """All frames of the first video stream, or each `every`-th; in grey or colour as they are, or as `grey` says."""
    try:
        import av
        from av.error import FFmpegError
    except ImportError:
        raise ImportError(f'reading {path} needs the package av: pip install "rpgssm[video]"') from None

    frames = []
    try:
        with av.open(str(path)) as container:
            if not container.streams.video:
                raise ValueError(f"{path} holds no video")
            stream = container.streams.video[0]
            stream.thread_type = "AUTO"
            if grey is None:
                grey = (stream.codec_context.pix_fmt or "").startswith(("gray", "mono"))
            target = "gray" if grey else "rgb24"
            height, width = size if size is not None else (None, None)
            for index, frame in enumerate(container.decode(stream)):
                if index % every == 0:
                    frames.append(frame.reformat(width=width, height=height, format=target).to_ndarray())
    except FFmpegError as error:
        raise ValueError(f"{path} cannot be read as a video: {error}") from None
    if not frames:
        raise ValueError(f"{path} holds no frames")
    return np.stack(frames)
