"""Notes the shape and dtype of every value of a graph by running it."""

from __future__ import annotations

from typing import Any, NamedTuple

from ...tensors.tensor import Tensor
from ..interpreter import Interpreter
from ..node import Node, map_aggregate


class TensorMetadata(NamedTuple):
    """What is known of a tensor without its elements."""

    shape: Any
    dtype: Any
    requires_grad: bool
    stride: tuple[int, ...]
    memory_format: Any
    is_quantized: bool
    qparams: dict[str, Any]


def _extract_tensor_metadata(result: Tensor, include_contiguity: bool = True) -> TensorMetadata:
    import flambeau
    layout = flambeau.contiguous_format if include_contiguity and result.is_contiguous() else None
    return TensorMetadata(result.shape, result.dtype, result.requires_grad, result.stride(), layout, False, {})


class ShapeProp(Interpreter):
    """`propagate(*inputs)` fills in `meta["tensor_meta"]` of all nodes."""

    def run_node(self, n: Node) -> Any:
        result = super().run_node(n)
        seen = False

        def describe(value: Any) -> Any:
            nonlocal seen
            if isinstance(value, Tensor):
                seen = True
                return _extract_tensor_metadata(value)
            return value

        meta = map_aggregate(result, describe)
        if seen:
            n.meta["tensor_meta"] = meta
        n.meta["type"] = type(result)
        return result

    def propagate(self, *args: Any) -> Any:
        return super().run(*args)
