"""`torch.onnx`: writing ONNX files is not implemented; asking whether one is being written works."""

from __future__ import annotations

import enum
from collections.abc import Callable

from .missing import refusal, refused

_REASON = "writing ONNX files is not implemented"

__path__: list[str] = []  # its private modules are found by name (internals.py)
for _name in ("export", "dynamo_export", "select_model_mode_for_export", "ExportOptions"):
    globals()[_name] = refusal(f"onnx.{_name}", _REASON)
globals().update(refused("onnx", _REASON, "ONNXProgram"))


OperatorExportTypes = enum.Enum("OperatorExportTypes", "ONNX ONNX_ATEN ONNX_ATEN_FALLBACK ONNX_FALLTHROUGH", start=0)
TrainingMode = enum.Enum("TrainingMode", "EVAL PRESERVE TRAINING", start=0)


TensorProtoDataType = enum.IntEnum(
    "TensorProtoDataType", "UNDEFINED FLOAT UINT8 INT8 UINT16 INT16 INT32 INT64 STRING BOOL FLOAT16 DOUBLE UINT32 UINT64 "
    "COMPLEX64 COMPLEX128 BFLOAT16 FLOAT8E4M3FN FLOAT8E4M3FNUZ FLOAT8E5M2 FLOAT8E5M2FNUZ", start=0)


def register_custom_op_symbolic(symbolic_name: str, symbolic_fn: Callable, opset_version: int) -> None:
    """Does nothing: how an operation would be exported is never asked, as nothing is exported."""


def unregister_custom_op_symbolic(symbolic_name: str, opset_version: int) -> None:
    """Does nothing, like its counterpart."""


def is_in_onnx_export() -> bool:
    """False: no export ever runs."""
    return False
