"""Pictures, videos and sound as summaries. Arrays in here are NumPy's; floats are within [0, 1], bytes within [0, 255]."""

from __future__ import annotations

import io
import math
import wave
from typing import Any

from tensorboard.compat.proto.summary_pb2 import Summary

from .summaries import array_of


def _bytes(picture: Any) -> Any:
    """Floats within [0, 1] as bytes."""
    scale = 1 if picture.dtype.name == "uint8" else 255
    return (picture.astype("float32") * scale).clip(0, 255).astype("uint8")


def grid(pictures: Any, across: int = 8) -> Any:
    """A batch (N, C, H, W) as one picture (3, H, W) of rows; grey becomes colour."""
    np = pictures.__array_namespace__()
    if pictures.ndim != 4 or pictures.shape[1] not in (1, 3):
        raise AssertionError(f"a batch of pictures has the shape (N, 1 or 3, H, W), got {pictures.shape}")
    count, _, h, w = pictures.shape
    across = min(count, across)
    down = math.ceil(count / across)
    canvas = np.zeros((down * across, 3, h, w), pictures.dtype)
    canvas[:count] = pictures
    return canvas.reshape(down, across, 3, h, w).transpose(2, 0, 3, 1, 4).reshape(3, down * h, across * w)


def _rows(picture: Any, dataformats: str) -> Any:
    """The picture as (H, W, C), whatever the order of its dimensions; a batch becomes a grid, grey colour."""
    order = dataformats.upper()
    if len(set(order)) != len(order) or len(order) != picture.ndim or set(order) not in ({*"NCHW"}, {*"CHW"}, {*"HW"}):
        raise AssertionError(f"dataformats must name each dimension once (NCHW, CHW, HW in any order): got {dataformats!r} for "
                             f"the shape {picture.shape}")
    np = picture.__array_namespace__()
    if len(order) == 4:
        return grid(picture.transpose([order.index(c) for c in "NCHW"])).transpose(1, 2, 0)
    if len(order) == 2:
        picture, order = picture[..., None], order + "C"
    picture = picture.transpose([order.index(c) for c in "HWC"])
    return np.concatenate([picture] * 3, 2) if picture.shape[2] == 1 else picture


def _encoded(picture: Any, image: Any, kind: str = "PNG", **options: Any) -> Summary.Image:
    file = io.BytesIO()
    image.save(file, format=kind, **options)
    height, width, channels = picture.shape[-3:]
    return Summary.Image(height=height, width=width, colorspace=channels, encoded_image_string=file.getvalue())


def image(tag: str, picture: Any, dataformats: str = "NCHW", rescale: float = 1, boxes: Any = None,
          labels: list[str] | None = None) -> Summary:
    """boxes: (N, 4) of left, top, right, bottom, drawn in red with their labels."""
    from PIL import Image
    picture = _bytes(_rows(array_of(picture), dataformats))
    drawn = Image.fromarray(picture)
    for n, box in enumerate([] if boxes is None else array_of(boxes).tolist()):
        _draw(drawn, box, labels[n] if labels is not None else None)
    if rescale != 1:
        drawn = drawn.resize((int(drawn.width * rescale), int(drawn.height * rescale)), Image.Resampling.LANCZOS)
    return Summary(value=[Summary.Value(tag=tag, image=_encoded(picture, drawn))])


def _draw(drawn: Any, box: list[float], label: str | None) -> None:
    from PIL import ImageDraw, ImageFont
    left, top, right, bottom = box
    pen = ImageDraw.Draw(drawn)
    pen.line([(left, top), (left, bottom), (right, bottom), (right, top), (left, top)], width=2, fill="Red")
    if label:
        font = ImageFont.load_default()
        x0, y0, x1, y1 = font.getbbox(label)
        margin = math.ceil(0.05 * (y1 - y0))
        pen.rectangle([(left, bottom - (y1 - y0) - 2 * margin), (left + x1 - x0, bottom)], fill="Red")
        pen.text((left + margin, bottom - (y1 - y0) - margin), label, fill="black", font=font)


def figure_picture(figure: Any, close: bool) -> Any:
    """A figure of matplotlib's, or a list of them, as (3, H, W) or (N, 3, H, W)."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    from ...tensors.dtypes import uint8
    from ...tensors.interop import frombuffer
    if isinstance(figure, list):
        made = [figure_picture(f, close) for f in figure]
        return made[0].__array_namespace__().stack(made)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    drawn = memoryview(canvas.buffer_rgba())
    picture = frombuffer(bytearray(drawn), dtype=uint8).reshape(drawn.shape).numpy()[:, :, :3].transpose(2, 0, 1)
    if close:
        from matplotlib import pyplot
        pyplot.close(figure)
    return picture


def video(tag: str, frames: Any, fps: float = 4) -> Summary:
    """(N, T, C, H, W) as an animated picture: the N videos side by side, filled up to a power of two."""
    from PIL import Image
    frames = array_of(frames)
    if frames.ndim != 5:
        raise ValueError(f"add_video: the video must have the shape (N, T, C, H, W), got {frames.shape}")
    n, t, c, h, w = frames.shape
    np = frames.__array_namespace__()
    places = n if n & (n - 1) == 0 else 2 ** n.bit_length()
    down = 2 ** ((n.bit_length() - 1) // 2)
    grid = np.zeros((places, t, c, h, w), frames.dtype)
    grid[:n] = frames
    grid = grid.reshape(down, places // down, t, c, h, w).transpose(2, 0, 4, 1, 5, 3)
    grid = _bytes(grid.reshape(t, down * h, places // down * w, c))
    first, *rest = [Image.fromarray(frame if c != 1 else frame[..., 0]) for frame in grid]
    made = _encoded(grid, first, "GIF", save_all=True, append_images=rest, duration=round(1000 / fps), loop=0)
    return Summary(value=[Summary.Value(tag=tag, image=made)])


def audio(tag: str, sound: Any, sample_rate: int = 44100) -> Summary:
    """One channel of samples within [-1, 1], as 16-bit WAV."""
    sound = array_of(sound).squeeze()
    if sound.ndim != 1:
        raise AssertionError(f"add_audio: the sound must have one dimension, got the shape {sound.shape}")
    samples = (sound.clip(-1, 1) * 32767).astype("<i2")
    file = io.BytesIO()
    with wave.open(file, "wb") as out:
        out.setnchannels(1)
        out.setsampwidth(2)
        out.setframerate(sample_rate)
        out.writeframes(samples.tobytes())
    made = Summary.Audio(sample_rate=sample_rate, num_channels=1, length_frames=len(samples), content_type="audio/wav",
                         encoded_audio_string=file.getvalue())
    return Summary(value=[Summary.Value(tag=tag, audio=made)])
