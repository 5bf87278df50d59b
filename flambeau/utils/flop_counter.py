"""Counts the floating-point operations of products, convolutions and attention, forward and backward."""

from __future__ import annotations

import inspect
import math
import warnings
from collections import defaultdict
from collections.abc import Callable
from typing import Any

from ..ops import aten as _aten
from ..ops.core.overrides import TorchFunctionMode
from ..tensors.tensor import Tensor
from .module_tracker import ModuleTracker

__all__ = ["FlopCounterMode", "register_flop_formula"]

Count = tuple[str, int]  # the name of the operation in PyTorch's table, and its operations


# ---------------------------------------------------------------------------------------- what each function does
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
_BACKWARD = {"convolution": "convolution_backward", "_scaled_dot_product_flash_attention":
             "_scaled_dot_product_flash_attention_backward", "addmm": "mm", "baddbmm": "bmm"}
_COMPOSITE = frozenset("multi_head_attention_forward einsum bilinear tensordot linalg_multi_dot chain_matmul inner".split())
_formulas: dict[Any, Callable[..., int]] = {}


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


def register_flop_formula(targets: Any, get_raw: bool = False) -> Callable:
    """A decorator: the function tells the operations of a function (or of a custom operation) from its arguments."""
    def register(formula: Callable[..., int]) -> Callable[..., int]:
        for target in targets if isinstance(targets, (list, tuple)) else (targets,):
            _formulas[target] = formula
        return formula

    return register


class FlopCounterMode(TorchFunctionMode):
    """A `with` block whose operations are counted by module; the backward passes of what is made in it count too."""

    def __init__(self, mods: Any = None, depth: int = 2, display: bool = True,
                 custom_mapping: dict[Any, Callable] | None = None):
        if mods is not None:
            warnings.warn("FlopCounterMode: mods is not needed, all modules are followed", stacklevel=2)
        self.depth, self.display = depth, display
        self.custom = {**_formulas, **(custom_mapping or {})}
        self.flop_counts: dict[str, dict[Any, int]] = defaultdict(lambda: defaultdict(int))
        self.mod_tracker = ModuleTracker()
        self._counting = False

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
        self._counting = True
        super().__enter__()
        return self

    def __exit__(self, *exc: Any) -> None:
        super().__exit__(*exc)
        self._counting = False
        self.mod_tracker.__exit__(*exc)
        if self.display:
            print(self.get_table(self.depth))

    # ------------------------------------------------------------------------------------------------------ counting
    def _add(self, name: str, count: int, modules: Any) -> None:
        op = getattr(_aten, name)
        for module in modules:
            self.flop_counts[module][op] += count

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        name = getattr(func, "__name__", "")
        if func in self.custom:
            result = func(*args, **kwargs)
            self._note(result, (name, self.custom[func](*args, **kwargs, out_val=result)), ())
        elif name in _COUNTS:
            result = func(*args, **kwargs)
            self._note(result, count_of(name, result, args, kwargs), (*args, *kwargs.values()))
        elif name in _CONVOLUTIONS:
            result = func(*args, **kwargs)
            self._note(result, count_of(name, result, args, kwargs), _factors(args, kwargs))
        elif name in _COMPOSITE:
            with _again(self):  # what it is made of counts
                result = inspect.unwrap(func)(*args, **kwargs)
        else:
            result = func(*args, **kwargs)
        return result

    def _note(self, result: Any, count: Count, inputs: Any) -> None:
        """Counts the call, and its backward pass when that comes: once more for each factor that wants a gradient."""
        name, flops = count
        modules = list(self.mod_tracker.parents)
        self._add(name, flops, modules)
        node = result.grad_fn if isinstance(result, Tensor) else None
        wanted = sum(isinstance(t, Tensor) and t.requires_grad and t.ndim > 1 for t in inputs)
        if node is not None and wanted:
            back = _BACKWARD.get(name, name)
            times = flops * wanted if "attention" not in name else flops * 5 // 2
            node.register_hook(lambda *grads: self._add(back, times, modules) if self._counting else None)


class _again:
    """Enters a mode for the calls inside a function that it has just been asked about."""

    def __init__(self, mode: FlopCounterMode):
        self.mode = mode

    def __enter__(self) -> None:
        TorchFunctionMode.__enter__(self.mode)

    def __exit__(self, *exc: Any) -> None:
        TorchFunctionMode.__exit__(self.mode, *exc)


def _short(n: int) -> str:
    """12.345 K and the like."""
    for power, letter in ((12, "T"), (9, "B"), (6, "M"), (3, "K")):
        if n >= 10**power:
            return f"{n / 10**power:.3f}{letter}"
    return str(n)


def _part(n: int, total: int) -> str:
    return f"{n / total * 100:.2f}%" if total else "0%"
