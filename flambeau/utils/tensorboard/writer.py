"""`SummaryWriter`: what a training loop tells TensorBoard."""

from __future__ import annotations

import math
import os
import socket
import time
import warnings
from typing import Any

from ...autograd.modes import no_grad
from ...creation.factories import as_tensor
from ...missing import refusal
from ...tensors.tensor import Tensor
from . import events

__all__ = ["FileWriter", "SummaryWriter"]

_EDGES = [1e-12 * 1.1**k for k in range(774)]
_DEFAULT_EDGES = [*[-e for e in reversed(_EDGES)], 0.0, *_EDGES]


class FileWriter:
    """One event file in a folder."""

    def __init__(self, log_dir: str, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""):
        self._folder = str(log_dir)
        os.makedirs(self._folder, exist_ok=True)
        now = time.time()
        name = f"events.out.tfevents.{int(now):010d}.{socket.gethostname()}.{os.getpid()}.{id(self) % 100000}{filename_suffix}"
        self._events = events.EventFile(os.path.join(self._folder, name), now)
        self._every, self._last = flush_secs, now

    def get_logdir(self) -> str:
        return self._folder

    def add_summary(self, summary: bytes, global_step: int | None = None, walltime: float | None = None) -> None:
        now = time.time()
        self._events.add(summary, now if walltime is None else walltime, global_step)
        if now - self._last >= self._every:
            self._last = now
            self.flush()

    def flush(self) -> None:
        self._events.flush()

    def close(self) -> None:
        self._events.close()


def _plain(value: Any) -> Tensor:
    return as_tensor(value).detach()


def _number(value: Any) -> float:
    try:
        return float(value)
    except TypeError:
        raise NotImplementedError(f"Got {type(value)}, but numpy array or torch tensor are expected.") from None


class SummaryWriter:
    """Writes scalars, histograms, pictures and text into a folder (by default runs/<date>_<host>)."""

    def __init__(self, log_dir: Any = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10,
                 flush_secs: int = 120, filename_suffix: str = ""):
        if not log_dir:
            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S") + f"_{socket.gethostname()}{comment}")
        self.log_dir = str(log_dir)
        self._options = (max_queue, flush_secs, filename_suffix)
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] = {}
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        if self.file_writer is None:
            self.file_writer = FileWriter(self.log_dir, *self._options)
            self.all_writers[self.log_dir] = self.file_writer
        return self.file_writer

    def get_logdir(self) -> str:
        return self.log_dir

    # ------------------------------------------------------------------------------------------------------ numbers
    def add_scalar(self, tag: str, scalar_value: Any, global_step: int | None = None, walltime: float | None = None,
                   new_style: bool = False, double_precision: bool = False) -> None:
        self._get_file_writer().add_summary(events.scalar(tag, _number(scalar_value)), global_step, walltime)

    def add_scalars(self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: int | None = None,
                    walltime: float | None = None) -> None:
        """Several curves in one plot: each in a folder of its own."""
        for tag, value in tag_scalar_dict.items():
            folder = f"{self.log_dir}/{main_tag.replace('/', '_')}_{tag}"
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, *self._options)
            self.all_writers[folder].add_summary(events.scalar(main_tag, _number(value)), global_step, walltime)

    @no_grad()
    def add_histogram(self, tag: str, values: Any, global_step: int | None = None, bins: str = "tensorflow",
                      walltime: float | None = None, max_bins: int | None = None) -> None:
        """How often values fall between edges that grow by a tenth each."""
        flat = _plain(values).reshape(-1).double()
        if not flat.numel():
            raise ValueError("The input has no element.")
        import flambeau
        edges = flambeau.tensor(_DEFAULT_EDGES, dtype=flambeau.float64)
        at = flambeau.searchsorted(edges, flat, right=True)
        counts = flambeau.bincount(at, minlength=len(_DEFAULT_EDGES) + 1).tolist()
        used = [i for i, n in enumerate(counts) if n]
        first, last = max(used[0] - 1, 0), min(used[-1] + 1, len(counts))
        limits = [_DEFAULT_EDGES[i] if i < len(_DEFAULT_EDGES) else math.inf for i in range(first, last)]
        made = events.histogram(tag, flat.min().item(), flat.max().item(), flat.numel(), flat.sum().item(),
                                (flat * flat).sum().item(), limits, counts[first:last])
        self._get_file_writer().add_summary(made, global_step, walltime)

    # ------------------------------------------------------------------------------------------------------ pictures
    @no_grad()
    def add_image(self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
                  dataformats: str = "CHW") -> None:
        """A picture of bytes, or of floats within [0, 1]."""
        picture = _plain(img_tensor)
        picture = picture.permute([dataformats.index(c) for c in "HWC"]) if "C" in dataformats else picture.unsqueeze(-1)
        self._add_picture(tag, picture, global_step, walltime)

    @no_grad()
    def add_images(self, tag: str, img_tensor: Any, global_step: int | None = None, walltime: float | None = None,
                   dataformats: str = "NCHW") -> None:
        """A batch of pictures, laid out as a square."""
        batch = _plain(img_tensor).permute([dataformats.index(c) for c in "NHWC"])
        n, h, w, c = batch.shape
        across = math.ceil(math.sqrt(n))
        down = math.ceil(n / across)
        grid = batch.new_zeros((down * across, h, w, c))
        grid[:n] = batch
        grid = grid.reshape(down, across, h, w, c).permute(0, 2, 1, 3, 4).reshape(down * h, across * w, c)
        self._add_picture(tag, grid, global_step, walltime)

    def _add_picture(self, tag: str, picture: Tensor, step: int | None, walltime: float | None) -> None:
        import flambeau
        if picture.is_floating_point():
            picture = (picture * 255).clamp(0, 255)
        picture = picture.to(flambeau.uint8).contiguous()
        height, width, channels = picture.shape
        rows = bytes(picture.numpy())
        self._get_file_writer().add_summary(events.image(tag, height, width, channels, rows), step, walltime)

    def add_figure(self, tag: str, figure: Any, global_step: int | None = None, close: bool = True,
                   walltime: float | None = None) -> None:
        """A figure of matplotlib's, or a list of them."""
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        for one in figure if isinstance(figure, list) else [figure]:
            canvas = FigureCanvasAgg(one)
            canvas.draw()
            self._add_picture(tag, as_tensor(canvas.buffer_rgba()), global_step, walltime)
            if close:
                from matplotlib import pyplot
                pyplot.close(one)

    # ---------------------------------------------------------------------------------------------------------- text
    def add_text(self, tag: str, text_string: str, global_step: int | None = None, walltime: float | None = None) -> None:
        self._get_file_writer().add_summary(events.text(tag, text_string), global_step, walltime)

    def add_hparams(self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any], hparam_domain_discrete: Any = None,
                    run_name: str | None = None, global_step: int | None = None) -> None:
        """The settings as text and the metrics as scalars, in a folder of the run's own."""
        with SummaryWriter(os.path.join(self.log_dir, run_name or str(time.time()))) as inner:
            rows = "\n".join(f"| {k} | {v} |" for k, v in hparam_dict.items())
            inner.add_text("hparams", f"| name | value |\n| --- | --- |\n{rows}", global_step)
            for k, v in metric_dict.items():
                inner.add_scalar(k, v, global_step)

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """Graphs are not written: says so, and lets the program go on."""
        warnings.warn("SummaryWriter.add_graph: flambeau does not write graphs of models; nothing was added", stacklevel=2)

    for _name in ("add_embedding", "add_video", "add_audio", "add_mesh", "add_pr_curve", "add_pr_curve_raw",
                  "add_custom_scalars", "add_onnx_graph"):
        locals()[_name] = refusal(f"SummaryWriter.{_name}", "this kind of summary is not implemented")
    del _name

    def flush(self) -> None:
        """Writes what is pending to disk."""
        for writer in self.all_writers.values():
            writer.flush()

    def close(self) -> None:
        for writer in self.all_writers.values():
            writer.close()
        self.file_writer, self.all_writers = None, {}

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
