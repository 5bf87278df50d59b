"""`SummaryWriter`: what a training loop tells TensorBoard."""

from __future__ import annotations

import os
import socket
import time
from typing import Any

from tensorboard.compat.proto.config_pb2 import RunMetadata
from tensorboard.compat.proto.event_pb2 import Event, SessionLog, TaggedRunMetadata
from tensorboard.plugins.projector.projector_config_pb2 import ProjectorConfig
from tensorboard.summary.writer.event_file_writer import EventFileWriter

from . import pictures, summaries
from .projector import write_embedding

__all__ = ["FileWriter", "SummaryWriter"]

_EDGES = [1e-12]
while _EDGES[-1] * 1.1 < 1e20:
    _EDGES.append(_EDGES[-1] * 1.1)
Time = float | None


class FileWriter:
    """One event file in a folder; events wait in a queue and are written by a thread."""

    def __init__(self, log_dir: Any, max_queue: int = 10, flush_secs: int = 120, filename_suffix: str = ""):
        self._options = str(log_dir), max_queue, flush_secs, filename_suffix
        self.event_writer = EventFileWriter(*self._options)

    def get_logdir(self) -> str:
        return self.event_writer.get_logdir()

    def add_event(self, event: Event, step: Any = None, walltime: Time = None) -> None:
        event.wall_time = time.time() if walltime is None else walltime
        if step is not None:
            event.step = int(step)
        self.event_writer.add_event(event)

    def add_summary(self, summary: Any, global_step: Any = None, walltime: Time = None) -> None:
        self.add_event(Event(summary=summary), global_step, walltime)

    def add_graph(self, graph_profile: tuple[Any, Any], walltime: Time = None) -> None:
        """A graph, and how long its parts took."""
        graph, stats = graph_profile
        self.add_event(Event(graph_def=graph.SerializeToString()), None, walltime)
        run = TaggedRunMetadata(tag="step1", run_metadata=stats.SerializeToString())
        self.add_event(Event(tagged_run_metadata=run), None, walltime)

    def add_onnx_graph(self, graph: Any, walltime: Time = None) -> None:
        self.add_event(Event(graph_def=graph.SerializeToString()), None, walltime)

    def flush(self) -> None:
        self.event_writer.flush()

    def close(self) -> None:
        self.event_writer.close()

    def reopen(self) -> None:
        """After close(): what comes goes into a new file of the same folder."""
        self.event_writer = EventFileWriter(*self._options)


class SummaryWriter:
    """Writes what TensorBoard shows into a folder, by default runs/<date>_<host><comment>.

    purge_step: what an earlier run wrote for this step and later ones is not shown any more. max_queue, flush_secs: after how
    many events, and how long, they reach the disk. filename_suffix: the end of the names of files.
    """

    def __init__(self, log_dir: Any = None, comment: str = "", purge_step: int | None = None, max_queue: int = 10,
                 flush_secs: int = 120, filename_suffix: str = ""):
        if not log_dir:
            log_dir = os.path.join("runs", time.strftime("%b%d_%H-%M-%S") + f"_{socket.gethostname()}{comment}")
        self.log_dir, self.purge_step = log_dir, purge_step
        self.max_queue, self.flush_secs, self.filename_suffix = max_queue, flush_secs, filename_suffix
        self.file_writer: FileWriter | None = None
        self.all_writers: dict[str, FileWriter] | None = None
        self.default_bins = [*[-e for e in reversed(_EDGES)], 0, *_EDGES]
        self._get_file_writer()

    def _get_file_writer(self) -> FileWriter:
        """The writer of the folder itself; after close() a new one."""
        if self.file_writer is None or self.all_writers is None:
            self.file_writer = FileWriter(self.log_dir, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers = {self.file_writer.get_logdir(): self.file_writer}
            if self.purge_step is not None:
                self.file_writer.add_event(Event(step=self.purge_step, file_version="brain.Event:2"))
                self.file_writer.add_event(Event(step=self.purge_step, session_log=SessionLog(status=SessionLog.START)))
                self.purge_step = None
        return self.file_writer

    def get_logdir(self) -> Any:
        return self.log_dir

    def _add(self, summary: Any, step: Any = None, walltime: Time = None) -> None:
        self._get_file_writer().add_summary(summary, step, walltime)

    # ------------------------------------------------------------------------------------------------------ numbers
    def add_scalar(self, tag: str, scalar_value: Any, global_step: Any = None, walltime: Time = None, new_style: bool = False,
                   double_precision: bool = False) -> None:
        """One number. new_style: in a form that loads faster, and in 64 bits with double_precision."""
        self._add(summaries.scalar(tag, scalar_value, new_style, double_precision), global_step, walltime)

    def add_scalars(self, main_tag: str, tag_scalar_dict: dict[str, Any], global_step: Any = None,
                    walltime: Time = None) -> None:
        """Several curves in one plot: each in a folder of its own."""
        walltime = time.time() if walltime is None else walltime
        home = self._get_file_writer().get_logdir()
        for tag, value in tag_scalar_dict.items():
            folder = f"{home}/{main_tag.replace('/', '_')}_{tag}"
            if folder not in self.all_writers:
                self.all_writers[folder] = FileWriter(folder, self.max_queue, self.flush_secs, self.filename_suffix)
            self.all_writers[folder].add_summary(summaries.scalar(main_tag, value), global_step, walltime)

    def add_tensor(self, tag: str, tensor: Any, global_step: Any = None, walltime: Time = None) -> None:
        """A tensor, element by element."""
        self._add(summaries.tensor_proto(tag, tensor), global_step, walltime)

    def add_histogram(self, tag: str, values: Any, global_step: Any = None, bins: Any = "tensorflow", walltime: Time = None,
                      max_bins: int | None = None) -> None:
        """How often values fall into bins; "tensorflow": bins that grow by a tenth each, else as numpy.histogram takes them."""
        if isinstance(bins, str) and bins == "tensorflow":
            bins = self.default_bins
        self._add(summaries.histogram(tag, values, bins, max_bins), global_step, walltime)

    def add_histogram_raw(self, tag: str, min: float, max: float, num: int, sum: float, sum_squares: float, bucket_limits: Any,
                          bucket_counts: Any, global_step: Any = None, walltime: Time = None) -> None:
        """A histogram that was counted already."""
        if len(bucket_limits) != len(bucket_counts):
            raise ValueError("len(bucket_limits) != len(bucket_counts), see the document.")
        self._add(summaries.histogram_raw(tag, min, max, num, sum, sum_squares, bucket_limits, bucket_counts), global_step,
                  walltime)

    def add_pr_curve(self, tag: str, labels: Any, predictions: Any, global_step: Any = None, num_thresholds: int = 127,
                     weights: Any = None, walltime: Time = None) -> None:
        """Precision and recall. labels: 0 or 1; predictions: how likely 1 is; weights: how much each example counts."""
        self._add(summaries.pr_curve(tag, labels, predictions, num_thresholds, weights), global_step, walltime)

    def add_pr_curve_raw(self, tag: str, true_positive_counts: Any, false_positive_counts: Any, true_negative_counts: Any,
                         false_negative_counts: Any, precision: Any, recall: Any, global_step: Any = None,
                         num_thresholds: int = 127, weights: Any = None, walltime: Time = None) -> None:
        """Precision and recall that were computed already (weights would have no effect, and are refused)."""
        if weights is not None:
            raise NotImplementedError("add_pr_curve_raw: weights have no effect on counts; weight the counts themselves")
        self._add(summaries.pr_curve_raw(tag, true_positive_counts, false_positive_counts, true_negative_counts,
                                         false_negative_counts, precision, recall, num_thresholds), global_step, walltime)

    def add_hparams(self, hparam_dict: dict[str, Any], metric_dict: dict[str, Any],
                    hparam_domain_discrete: dict[str, list[Any]] | None = None, run_name: str | None = None,
                    global_step: Any = None) -> None:
        """The settings of a run and the metrics that came of them, in a folder of the run's own."""
        if type(hparam_dict) is not dict or type(metric_dict) is not dict:
            raise TypeError("hparam_dict and metric_dict should be dictionary.")
        made = summaries.hparams(hparam_dict, metric_dict, hparam_domain_discrete)
        with SummaryWriter(os.path.join(self._get_file_writer().get_logdir(), run_name or str(time.time()))) as inner:
            for summary in made:
                inner._add(summary, global_step)
            for k, v in metric_dict.items():
                inner.add_scalar(k, v, global_step)

    # --------------------------------------------------------------------------------------------- pictures and sound
    def add_image(self, tag: str, img_tensor: Any, global_step: Any = None, walltime: Time = None,
                  dataformats: str = "CHW") -> None:
        """A picture of bytes, or of floats within [0, 1]."""
        self._add(pictures.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_images(self, tag: str, img_tensor: Any, global_step: Any = None, walltime: Time = None,
                   dataformats: str = "NCHW") -> None:
        """A batch of pictures, eight in a row."""
        if isinstance(img_tensor, list):  # a list of pictures, or of numbers in nested lists
            img_tensor = summaries.as_tensor([summaries.array_of(t).tolist() for t in img_tensor])
        self._add(pictures.image(tag, img_tensor, dataformats), global_step, walltime)

    def add_image_with_boxes(self, tag: str, img_tensor: Any, box_tensor: Any, global_step: Any = None, walltime: Time = None,
                             rescale: float = 1, dataformats: str = "CHW", labels: Any = None) -> None:
        """A picture with boxes (left, top, right, bottom) drawn on it, and their labels."""
        labels = [labels] if isinstance(labels, str) else labels
        if labels is not None and len(labels) != box_tensor.shape[0]:
            labels = None  # as PyTorch does
        self._add(pictures.image(tag, img_tensor, dataformats, rescale, box_tensor, labels), global_step, walltime)

    def add_figure(self, tag: str, figure: Any, global_step: Any = None, close: bool = True, walltime: Time = None) -> None:
        """A figure of matplotlib's, or a list of them."""
        self.add_image(tag, pictures.figure_picture(figure, close), global_step, walltime,
                       dataformats="NCHW" if isinstance(figure, list) else "CHW")

    def add_video(self, tag: str, vid_tensor: Any, global_step: Any = None, fps: float = 4, walltime: Time = None) -> None:
        """Videos (N, T, C, H, W) side by side, as an animated GIF."""
        self._add(pictures.video(tag, vid_tensor, fps), global_step, walltime)

    def add_audio(self, tag: str, snd_tensor: Any, global_step: Any = None, sample_rate: int = 44100,
                  walltime: Time = None) -> None:
        """Samples within [-1, 1]."""
        self._add(pictures.audio(tag, snd_tensor, sample_rate), global_step, walltime)

    # ------------------------------------------------------------------------------------------ text, layouts, graphs
    def add_text(self, tag: str, text_string: str, global_step: Any = None, walltime: Time = None) -> None:
        """Markdown."""
        self._add(summaries.text(tag, text_string), global_step, walltime)

    def add_custom_scalars(self, layout: dict[str, dict[str, list[Any]]]) -> None:
        """Which curves share a chart: {category: {chart: ["Multiline", tags] or ["Margin", [value, lower, upper]]}}."""
        self._add(summaries.custom_scalars(layout))

    def add_custom_scalars_multilinechart(self, tags: list[str], category: str = "default", title: str = "untitled") -> None:
        self._add(summaries.custom_scalars({category: {title: ["Multiline", tags]}}))

    def add_custom_scalars_marginchart(self, tags: list[str], category: str = "default", title: str = "untitled") -> None:
        self._add(summaries.custom_scalars({category: {title: ["Margin", tags]}}))

    def add_mesh(self, tag: str, vertices: Any, colors: Any = None, faces: Any = None,
                 config_dict: dict[str, Any] | None = None, global_step: Any = None, walltime: Time = None) -> None:
        """Points in space (batch, number, 3), with their colours (0 to 255) and the triangles between them."""
        self._add(summaries.mesh(tag, vertices, colors, faces, config_dict), global_step, walltime)

    def add_embedding(self, mat: Any, metadata: Any = None, label_img: Any = None, global_step: Any = None,
                      tag: str = "default", metadata_header: list[str] | None = None) -> None:
        """Points (N, D) for the projector, with a label (or a list of columns) and a picture (N, C, H, W) each."""
        step, home = str(global_step or 0).zfill(5), self._get_file_writer().get_logdir()
        if "_projector_config" not in self.__dict__:
            self._projector_config = ProjectorConfig()
        write_embedding(self._projector_config, home, f"{step}/{self._encode(tag)}", f"{tag}:{step}", mat, metadata, label_img,
                        metadata_header)

    @staticmethod
    def _encode(rawstr: str) -> str:
        """A tag as the name of a folder."""
        for c in "%/\\":
            rawstr = rawstr.replace(c, f"%{ord(c):02x}")
        return rawstr

    def add_graph(self, model: Any, input_to_model: Any = None, verbose: bool = False, use_strict_trace: bool = True) -> None:
        """The graph of model(*input_to_model), which is called once. Whatever containers it returns, use_strict_trace=False is
        what happens: there is no trace that could forbid them."""
        from .graph import graph
        self._get_file_writer().add_graph((graph(model, input_to_model, verbose), RunMetadata()))

    def add_onnx_graph(self, prototxt: Any) -> None:
        """Not available: ONNX files are not read."""
        raise NotImplementedError("SummaryWriter.add_onnx_graph is missing in flambeau: ONNX files are not read; use add_graph")

    # ------------------------------------------------------------------------------------------------------- the end
    def flush(self) -> None:
        """Writes what is pending to disk."""
        for writer in (self.all_writers or {}).values():
            writer.flush()

    def close(self) -> None:
        """Writes what is pending and closes the files; what comes later opens a new one."""
        for writer in (self.all_writers or {}).values():
            writer.flush()
            writer.close()
        self.file_writer = self.all_writers = None

    def __enter__(self) -> SummaryWriter:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.close()
