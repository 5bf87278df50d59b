"""`SummaryWriter`: logs that TensorBoard shows, written by the package `tensorboard` (`pip install flambeau[tensorboard]`)."""

from __future__ import annotations

try:
    import tensorboard  # noqa: F401
except ImportError as error:
    raise ImportError("utils.tensorboard writes its files with the package tensorboard, which is not installed: "
                      "pip install 'flambeau[tensorboard]'") from error

from tensorboard.summary.writer.record_writer import RecordWriter

from .writer import FileWriter, SummaryWriter

__all__ = ["FileWriter", "RecordWriter", "SummaryWriter"]
