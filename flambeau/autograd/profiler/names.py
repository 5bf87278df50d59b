"""What PyTorch's profiler calls an operation."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tensors.tensor import Tensor

# Functions that PyTorch's dispatcher knows by another name; None: those that it does not know, whose parts are noted instead.
_OTHER = {"cross_entropy": "cross_entropy_loss", "pow_scalar": "pow", "backward": None, "grad": None, "tolist": None,
          "normalize": None, "_assert": None, "double": "to", "float": "to", "half": "to", "long": "to", "int": "to",
          "bool": "to", "bfloat16": "to", "type_as": "to", "__rdiv__": None, "__rtruediv__": None, "__rmatmul__": None,
          "tensor": "lift_fresh", "floor_div": "floor_divide", "new_tensor": "lift_fresh", "__len__": None, "__iter__": None,
          "numpy": None, "sum_to_size": "sum", "register_hook": None, "requires_grad_": None,
          "multi_head_attention_forward": None}


def name_of(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """aten::mul for `x * y`; None for what is no operation."""
    name = getattr(function, "__name__", None)
    if name is None or name.startswith("is_"):  # a question about a tensor is none
        return None
    if name in ("__getitem__", "__setitem__"):
        name = _indexing(args, name == "__setitem__")
    elif kwargs.get("inplace") is True:
        name += "_"
    name = _OTHER.get(name, name)
    return None if name is None else f"aten::{name}"


def _indexing(args: tuple[Any, ...], writes: bool) -> str:
    key = args[1] if len(args) > 1 else None
    parts = key if isinstance(key, tuple) else (key,)
    if any([isinstance(k, (Tensor, list)) for k in parts]):
        return "index_put_" if writes else "index"
    if writes:
        return "copy_"
    if any([isinstance(k, slice) for k in parts]):
        return "slice"
    return "unsqueeze" if any([k is None for k in parts]) else "select"
