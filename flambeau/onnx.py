"""`torch.onnx`: writing ONNX files is not implemented; asking whether one is being written works."""

from __future__ import annotations

import enum

from .missing import refusal

_REASON = "writing ONNX files is not implemented"

for _name in ("export", "dynamo_export", "register_custom_op_symbolic", "unregister_custom_op_symbolic",
              "select_model_mode_for_export", "ExportOptions", "ONNXProgram"):
    globals()[_name] = refusal(f"onnx.{_name}", _REASON)


OperatorExportTypes = enum.Enum("OperatorExportTypes", "ONNX ONNX_ATEN ONNX_ATEN_FALLBACK ONNX_FALLTHROUGH", start=0)
TrainingMode = enum.Enum("TrainingMode", "EVAL PRESERVE TRAINING", start=0)


def is_in_onnx_export() -> bool:
    """False: no export ever runs."""
    return False
