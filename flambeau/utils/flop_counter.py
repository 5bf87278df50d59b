"""Counts the floating-point operations of products, convolutions and attention, forward and backward.

The profiler counts functions (`count_of`), `FlopCounterMode` the operations below autograd that they are made of.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ..ops import aten as _aten
from ..ops.aten import OpOverloadPacket
from ..tensors.tensor import Tensor
from ._python_dispatch import TorchDispatchMode
from ._pytree import tree_map
from .module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

Count = tuple[str, int]  # the name of the operation in PyTorch's table, and its operations


# ---------------------------------------------------------------------- what each function does, for the profiler
def _matmul(a: Tensor, b: Tensor, *rest: Any, **named: Any) -> Count:
    """2 * rows * inner * columns, for every matrix of the batch."""
    inner = a.shape[-1]
    rows = a.shape[-2] if a.ndim > 1 else 1
    columns = b.shape[-1] if b.ndim > 1 else 1
    if b.ndim <= 2:  # one matrix: the batch of the first is folded into its rows
        return "mm", 2 * a.numel() * columns
    batch = math.prod(_broadcast(a.shape[:-2], b.shape[:-2]))
    return "bmm", 2 * batch * rows * inner * columns


def _broadcast(*shapes: Any) -> Any:
    from ..tensors.shapes import broadcast_shapes
    return broadcast_shapes(*map(tuple, shapes))


def _added(name: str) -> Callable[..., Count]:
    return lambda start, a, b, *rest, **named: (name, _matmul(a, b)[1])


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None, **named: Any) -> Count:
    return "addmm" if bias is not None and input.ndim == 2 else "mm", 2 * input.numel() * (
        weight.shape[0] if weight.ndim > 1 else 1)


def _convolution(result: Tensor, input: Tensor, weight: Tensor, transposed: bool) -> Count:
    over = input if transposed else result
    return "convolution", 2 * over.numel() // max(over.shape[1 if over.ndim == weight.ndim else 0], 1) * weight.numel()


def _attention(query: Tensor, key: Tensor, value: Tensor, *rest: Any, **named: Any) -> Count:
    *batch, rows, width = query.shape
    scores = 2 * math.prod(batch) * rows * key.shape[-2] * width
    return "_scaled_dot_product_flash_attention", scores + 2 * math.prod(batch) * rows * key.shape[-2] * value.shape[-1]


_COUNTS: dict[str, Callable[..., Count]] = {
    "matmul": _matmul, "mm": _matmul, "bmm": _matmul, "mv": _matmul, "dot": _matmul, "__matmul__": _matmul, "linear": _linear,
    "addmm": _added("addmm"), "baddbmm": _added("baddbmm"), "addbmm": _added("bmm"), "addmv": _added("addmm"),
    "scaled_dot_product_attention": _attention,
}
_CONVOLUTIONS = {f"conv{t}{d}d": bool(t) for t in ("", "_transpose") for d in (1, 2, 3)}


def count_of(name: str, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Count | None:
    """The operations of a call of a function; None for one whose operations are not counted."""
    if name in _COUNTS:
        return _COUNTS[name](*args, **kwargs)
    if name in _CONVOLUTIONS:
        return _convolution(result, *_factors(args, kwargs), _CONVOLUTIONS[name])
    return None


def _factors(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Tensor, Tensor]:
    """The input and the weight of a convolution."""
    return args[0] if args else kwargs["input"], args[1] if len(args) > 1 else kwargs["weight"]


# -------------------------------------------------------------------------- what each operation below autograd does
def mm_flop(a_shape: Any, b_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    """2 * rows * inner * columns."""
    return 2 * a_shape[0] * a_shape[1] * b_shape[1]


def addmm_flop(self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return mm_flop(a_shape, b_shape)


def bmm_flop(a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return 2 * a_shape[0] * a_shape[1] * a_shape[2] * b_shape[2]


def baddbmm_flop(self_shape: Any, a_shape: Any, b_shape: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return bmm_flop(a_shape, b_shape)


def conv_flop_count(x_shape: Any, w_shape: Any, out_shape: Any, transposed: bool = False) -> int:
    """For every position of the result (of the input, where transposed) one product with the kernel."""
    positions = math.prod((x_shape if transposed else out_shape)[2:])
    return 2 * x_shape[0] * positions * math.prod(w_shape)


def conv_flop(x_shape: Any, w_shape: Any, _bias: Any, _stride: Any, _padding: Any, _dilation: Any, transposed: bool, *args: Any,
              out_shape: Any = None, **kwargs: Any) -> int:
    return conv_flop_count(x_shape, w_shape, out_shape, transposed)


def conv_backward_flop(grad_shape: Any, x_shape: Any, w_shape: Any, _bias: Any, _stride: Any, _padding: Any, _dilation: Any,
                       transposed: bool, _output_padding: Any, _groups: Any, output_mask: Any, out_shape: Any = None) -> int:
    """The gradients of input and weight are convolutions of as many operations as the forward one."""
    return (output_mask[0] + output_mask[1]) * conv_flop_count(x_shape, w_shape, grad_shape, transposed)


def sdpa_flop_count(query_shape: Any, key_shape: Any, value_shape: Any) -> int:
    """Scores and their product with the values."""
    b, h, rows, width = query_shape
    return 2 * b * h * rows * key_shape[2] * (width + value_shape[3])


def sdpa_flop(query_shape: Any, key_shape: Any, value_shape: Any, *args: Any, out_shape: Any = None, **kwargs: Any) -> int:
    return sdpa_flop_count(query_shape, key_shape, value_shape)


def sdpa_backward_flop_count(grad_out_shape: Any, query_shape: Any, key_shape: Any, value_shape: Any) -> int:
    """The scores once more, and two products for each of the two that the forward pass made."""
    b, h, rows, width = query_shape
    return 2 * b * h * rows * key_shape[2] * (3 * width + 2 * value_shape[3])


def sdpa_backward_flop(grad_out_shape: Any, query_shape: Any, key_shape: Any, value_shape: Any, *args: Any,
                       out_shape: Any = None, **kwargs: Any) -> int:
    return sdpa_backward_flop_count(grad_out_shape, query_shape, key_shape, value_shape)


def shape_wrapper(formula: Callable[..., int]) -> Callable[..., int]:
    """A formula over shapes as one over tensors."""
    @functools.wraps(formula)
    def counted(*args: Any, out_val: Any = None, **kwargs: Any) -> int:
        args, kwargs, out_shape = tree_map(_shape, (args, kwargs, out_val))
        return formula(*args, out_shape=out_shape, **kwargs)

    return counted


def _shape(value: Any) -> Any:
    return value.shape if isinstance(value, Tensor) else value


flop_registry: dict[Any, Callable[..., int]] = {}


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable:
    """A decorator: the function tells the operations of an operation from its arguments' shapes (get_raw: from themselves)."""
    def register(formula: Callable[..., int]) -> Callable[..., int]:
        counted = formula if get_raw else shape_wrapper(formula)
        for target in targets if isinstance(targets, (list, tuple)) else (targets,):
            if not isinstance(target, OpOverloadPacket) and not hasattr(target, "_opoverload"):
                raise ValueError(f"register_flop_formula(targets): expected each target to be OpOverloadPacket (i.e. "
                                 f"torch.ops.mylib.foo), or a custom operation, got {target} which is of type {type(target)}")
            if target in flop_registry:
                raise RuntimeError(f"duplicate registrations for {target}")
            flop_registry[_packet_of(target)] = counted
        return formula

    return register


def _packet_of(target: Any) -> Any:
    """Of a custom operation: what modes see of it."""
    return target if isinstance(target, OpOverloadPacket) else target._opoverload._overloadpacket


for _names, _formula in (("mm", mm_flop), ("addmm", addmm_flop), ("bmm", bmm_flop), ("baddbmm", baddbmm_flop),
                         ("convolution _convolution", conv_flop), ("convolution_backward", conv_backward_flop),
                         ("_scaled_dot_product_flash_attention _scaled_dot_product_efficient_attention "
                          "_scaled_dot_product_cudnn_attention", sdpa_flop),
                         ("_scaled_dot_product_flash_attention_backward _scaled_dot_product_efficient_attention_backward "
                          "_scaled_dot_product_cudnn_attention_backward", sdpa_backward_flop)):
    register_flop_formula([getattr(_aten, n) for n in _names.split()])(_formula)


class FlopCounterMode(TorchDispatchMode):
    """A `with` block whose operations are counted by module, those of backward passes too.

    As in PyTorch the attention that is fused on a CPU (`_scaled_dot_product_flash_attention_for_cpu`) has no formula: give one
    in custom_mapping to count it.
    """

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True,
                 custom_mapping: dict[Any, Callable] | None = None):
        super().__init__()
        if mods is not None:
            warnings.warn("mods argument is not needed anymore, you can stop passing it", stacklevel=2)
        self.depth, self.display = depth, display
        custom = {k: v if getattr(v, "_get_raw", False) else shape_wrapper(v) for k, v in (custom_mapping or {}).items()}
        self.flop_registry = {**flop_registry, **custom}
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.mod_tracker = ModuleTracker()

    # ------------------------------------------------------------------------------------------------------- results
    def get_total_flops(self) -> int:
        return sum(self.flop_counts["Global"].values())

    def get_flop_counts(self) -> dict[str, dict[Any, int]]:
        """Module -> operation -> count."""
        return {k: dict(v) for k, v in self.flop_counts.items()}

    def get_table(self, depth: int | None = None) -> str:
        """The counts as text, modules down to a depth."""
        depth = self.depth if depth is None else depth
        total = self.get_total_flops()
        rows = [["Module", "FLOP", "% Total"]]
        for name in ["Global", *sorted(n for n in self.flop_counts if n != "Global" and n.count(".") < depth)]:
            indent = 0 if name == "Global" else name.count(".") + 1
            here = sum(self.flop_counts[name].values())
            rows.append([" " * indent + name, _short(here), _part(here, total)])
            rows += [[f"{' ' * indent} - {op}", _short(n), _part(n, total)] for op, n in self.flop_counts[name].items()]
        widths = [max(len(r[i]) for r in rows) for i in range(3)]
        rows.insert(1, ["-" * w for w in widths])
        return "\n".join(f"{a.ljust(widths[0])}  {b.rjust(widths[1])}  {c.rjust(widths[2])}" for a, b, c in rows)

    def __enter__(self) -> FlopCounterMode:
        self.flop_counts.clear()
        self.mod_tracker.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        self.mod_tracker.__exit__(*exc)
        if self.display:
            print(self.get_table(self.depth))

    # ------------------------------------------------------------------------------------------------------ counting
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        result = func(*args, **kwargs)
        packet = func._overloadpacket
        if packet in self.flop_registry:
            count = self.flop_registry[packet](*args, **kwargs, out_val=result)
            for module in set(self.mod_tracker.parents):
                self.flop_counts[module][packet] += count
        return result


def _short(n: int) -> str:
    """12.345 K and the like."""
    for power, letter in ((12, "T"), (9, "B"), (6, "M"), (3, "K")):
        if n >= 10**power:
            return f"{n / 10**power:.3f}{letter}"
    return str(n)


def _part(n: int, total: int) -> str:
    return f"{n / total * 100:.2f}%" if total else "0%"
