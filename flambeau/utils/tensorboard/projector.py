"""The files that TensorBoard's embedding projector reads: points, their labels and pictures, and what belongs together."""

from __future__ import annotations

import math
import os
from typing import Any

from google.protobuf import text_format
from tensorboard.plugins.projector.projector_config_pb2 import EmbeddingInfo, ProjectorConfig

from .pictures import grid
from .summaries import array_of


def write_embedding(config: ProjectorConfig, log_dir: str, folder: str, name: str, points: Any, labels: Any, pictures: Any,
                    header: list[str] | None) -> None:
    """Writes points (N, D) below `folder` of the log's, and enters them in the configuration."""
    points = array_of(points)
    if points.ndim != 2:
        raise AssertionError("mat should be 2D, where mat.size(0) is the number of data points")
    if labels is not None and len(labels) != len(points):
        raise AssertionError("#labels should equal with #data points")
    if pictures is not None and len(pictures) != len(points):
        raise AssertionError("#images should equal with #data points")
    where = os.path.join(log_dir, folder)
    os.makedirs(where, exist_ok=True)
    _write(where, "tensors.tsv", ["\t".join(map(str, row)) for row in points.tolist()])
    info = EmbeddingInfo(tensor_name=name, tensor_path=os.path.join(folder, "tensors.tsv"))
    if labels is not None:
        _write(where, "metadata.tsv", _table(labels, header))
        info.metadata_path = os.path.join(folder, "metadata.tsv")
    if pictures is not None:
        _sprite(array_of(pictures)).save(os.path.join(where, "sprite.png"))
        info.sprite.image_path = os.path.join(folder, "sprite.png")
        info.sprite.single_image_dim.extend([pictures.shape[3], pictures.shape[2]])
    config.embeddings.append(info)
    _write(log_dir, "projector_config.pbtxt", text_format.MessageToString(config).splitlines())


def _write(folder: str, name: str, lines: list[str]) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.writelines([line + "\n" for line in lines])


def _table(labels: list[Any], header: list[str] | None) -> list[str]:
    if not header:
        return [str(label) for label in labels]
    if len(header) != len(labels[0]):
        raise AssertionError("len of header must be equal to the number of columns in metadata")
    return ["\t".join(map(str, row)) for row in [header, *labels]]


def _sprite(pictures: Any) -> Any:
    """All pictures in one square, as the projector wants them."""
    from PIL import Image
    across = math.ceil(len(pictures) ** 0.5)
    rows = grid(pictures, across).transpose(1, 2, 0)
    square = rows.__array_namespace__().zeros((rows.shape[1], rows.shape[1], 3))
    square[:len(rows)] = rows[:rows.shape[1]]
    return Image.fromarray((square * 255).clip(0, 255).astype("uint8"))
