"""Text of tensors: what ``repr``, ``str`` and ``format`` show.

The work is done on Python numbers. A tensor that holds more than ``threshold`` elements is cut down to its edges by slicing
*before* any element leaves the backend, so the cost of printing depends on what is shown, not on what is stored.
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections.abc import Iterator
from typing import Any

from ..autograd.state import state
from ..backends.batched.arrays import BatchedArray, levels_of
from .dtypes import get_default_dtype
from .parameter import Parameter
from .tensor import Tensor, wrap

__all__ = ["PRINT_OPTS", "PrinterOptions", "get_printoptions", "parameter_repr", "printoptions", "set_printoptions",
           "tensor_format", "tensor_repr"]


# ---------------------------------------------------------------------------------------------------------------- options
@dataclasses.dataclass
class PrinterOptions:
    precision: int = 4
    threshold: float = 1000
    edgeitems: int = 3
    linewidth: int = 80
    sci_mode: bool | None = None


PRINT_OPTS = PrinterOptions()

_PROFILES = {
    "default": {"precision": 4, "threshold": 1000, "edgeitems": 3, "linewidth": 80},
    "short": {"precision": 2, "threshold": 1000, "edgeitems": 2, "linewidth": 80},
    "full": {"precision": 4, "threshold": math.inf, "edgeitems": 3, "linewidth": 80},
}


def set_printoptions(precision: int | None = None, threshold: float | None = None, edgeitems: int | None = None,
                     linewidth: int | None = None, profile: str | None = None, sci_mode: bool | None = None) -> None:
    """Changes how tensors are printed.

    ``profile`` ('default', 'short', 'full') is applied first, the single options over it; an option left at None keeps its
    value. ``sci_mode`` is the exception: None means "decide from the data", so every call sets it. An unknown profile is
    ignored.
    """
    given = {"precision": precision, "threshold": threshold, "edgeitems": edgeitems, "linewidth": linewidth}
    changes = {**_PROFILES.get(profile, {}), **{name: value for name, value in given.items() if value is not None}}
    for name, value in changes.items():
        setattr(PRINT_OPTS, name, value)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions() -> dict[str, Any]:
    """The options in force, as a dict that ``set_printoptions`` accepts.

    >>> torch.get_printoptions()["precision"]
    4
    """
    return dataclasses.asdict(PRINT_OPTS)


@contextlib.contextmanager
def printoptions(**kwargs: Any) -> Iterator[None]:
    """Options that hold inside a ``with`` block only."""
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        set_printoptions(**before)


# ----------------------------------------------------------- columns: how one number is written, and the width they share
class _TextColumn:
    """Integers and booleans: the Python text, right-aligned."""

    def __init__(self, values):
        self.width = max((len(str(v)) for v in values), default=1)

    def __call__(self, value):
        return str(value).rjust(self.width)


class _FloatColumn:
    """Real numbers, in one of three styles chosen from the finite nonzero ones.

    'whole' writes ``3.``, 'fixed' writes ``3.0000`` and 'sci' ``3.0000e+00``. Zeros, infinities and nans follow the style and
    are padded to the width but decide neither; among nothing but them the style is 'whole' whatever ``sci_mode`` says.
    """

    def __init__(self, values, opts):
        self.precision = opts.precision
        sizes = [v for v in values if v != 0 and math.isfinite(v)]
        integral = all(v == math.floor(v) for v in sizes)
        self.style = "whole" if integral else "fixed"
        self.width = 1
        if sizes:
            sci = opts.sci_mode
            if sci is None:
                low, high = min(map(abs, sizes)), max(map(abs, sizes))
                sci = high / low > 1000.0 or high > 1.0e8 or (not integral and low < 1.0e-4)
            if sci:
                self.style = "sci"
            self.width = max(len(self._text(v)) for v in sizes)

    def _text(self, value):
        if self.style == "sci":
            return f"{value:.{self.precision}e}"
        if self.style == "fixed":
            return f"{value:.{self.precision}f}"
        return f"{value:.0f}." if math.isfinite(value) else f"{value:.0f}"

    def __call__(self, value):
        return self._text(value).rjust(self.width)


class _ComplexColumn:
    """Real and imaginary parts, each a column with a style of its own."""

    def __init__(self, values, opts):
        self.real = _FloatColumn([v.real for v in values], opts)
        self.imag = _FloatColumn([v.imag for v in values], opts)
        self.width = self.real.width + self.imag.width + 1

    def __call__(self, value):
        imag = self.imag(value.imag).lstrip()
        sign = "" if imag[0] in "+-" else "+"
        return f"{self.real(value.real)}{sign}{imag}j"


# --------------------------------------------------------------------------------------------------------------- elements
_GAP = object()  # stands where elements were left out


def _shown(t, edge, summarize):
    """Nested lists of the elements that will be written, with gaps marked."""
    if not summarize:
        return t.tolist()
    size = t.shape[0]
    if t.dim() == 1:
        if size <= 2 * edge:
            return t.tolist()
        return t[:edge].tolist() + [_GAP] + t[size - edge:].tolist()
    if size <= 2 * edge:
        return [_shown(t[i], edge, True) for i in range(size)]
    head = [_shown(t[i], edge, True) for i in range(edge)]
    tail = [_shown(t[i], edge, True) for i in range(size - edge, size)]
    return head + [_GAP] + tail


def _leaves(nested, depth):
    if depth == 0:
        return [nested]
    for _ in range(depth - 1):
        nested = [item for part in nested if part is not _GAP for item in part]
    return [v for v in nested if v is not _GAP]


def _layout(nested, depth, indent, column, linewidth):
    """Brackets, commas and line breaks around the written elements."""
    if depth == 0:
        return column(nested)
    if depth == 1:
        cells = [" ..." if v is _GAP else column(v) for v in nested]
        per_line = max(1, math.floor((linewidth - indent) / (column.width + 2)))
        rows = [", ".join(cells[i:i + per_line]) for i in range(0, len(cells), per_line)]
        between = ",\n" + " " * (indent + 1)
    else:
        rows = ["..." if part is _GAP else _layout(part, depth - 1, indent + 1, column, linewidth) for part in nested]
        between = "," + "\n" * (depth - 1) + " " * (indent + 1)
    return "[" + between.join(rows) + "]"


def _contents(t, indent, opts, summarize):
    # Slices of a tensor that requires grad would record history for nothing.
    source = t.detach() if t.requires_grad else t
    nested = _shown(source, opts.edgeitems, summarize)
    values = _leaves(nested, t.dim())
    if t.is_complex():
        column: Any = _ComplexColumn(values, opts)
    else:
        column = _FloatColumn(values, opts) if t.is_floating_point() else _TextColumn(values)
    return _layout(nested, t.dim(), indent, column, opts.linewidth)


def contents(t: Tensor, indent: int) -> str:
    """The elements in brackets, cut down to the edges where there are many."""
    if t.numel() == 0:
        return "[]"
    return _contents(t, indent, PRINT_OPTS, t.numel() > PRINT_OPTS.threshold and t.dim() > 0)


# ----------------------------------------------------------------------------------------------------------- the whole text
def _is_default(dtype_name, default):
    """Whether a dtype goes without saying, next to elements that show its kind."""
    twin = "torch.complex128" if default == "torch.float64" else "torch.complex64"
    return dtype_name in (default, "torch.int64", "torch.bool", twin)


def _grad_suffix(t):
    try:
        grad_fn = t.grad_fn
    except RuntimeError:  # a view whose base was changed in a way that autograd does not follow
        return ["grad_fn=<Invalid>"]
    if grad_fn is not None:
        return [f"grad_fn=<{type(grad_fn).__name__}>", *_tangent_suffix(t)]
    return [*(["requires_grad=True"] if t.requires_grad else []), *_tangent_suffix(t)]


def _tangent_suffix(t):
    if getattr(t, "_tangent", None) is None:
        return []
    from ..autograd.forward_mode import tangent_of
    tangent = tangent_of(t)
    return [] if tangent is None else [f"tangent={tensor_repr(tangent)}"]


def _inside_transforms(array: Any, tracked: list[int]) -> str:
    """A tensor that belongs to transformations under way (torch.func), the innermost of which is shown outermost."""
    levels = levels_of(array)
    if not tracked and not levels:
        return tensor_repr(wrap(array))
    if levels and (not tracked or levels[0].position > tracked[-1]):
        inside = _inside_transforms(array.examples, tracked).replace("\n", "\n    ")
        return f"BatchedTensor(lvl={levels[0].position}, bdim=0, value=\n    {inside}\n)"
    inside = _inside_transforms(array, tracked[:-1]).replace("\n", "\n    ")
    return f"GradTrackingTensor(lvl={tracked[-1]}, value=\n    {inside}\n)"


def tensor_repr(t: Tensor, *, tensor_contents: str | None = None) -> str:
    """The text of ``repr(t)``; ``tensor_contents`` replaces the elements.

    For a Parameter this is the text without its ``Parameter containing:`` line; see ``parameter_repr``.
    """
    tracked = [made.position for made in state.transforms] if state.transforms and t.requires_grad else []
    if tracked or type(t._array) is BatchedArray:
        return _inside_transforms(t._array, tracked)
    opts = PRINT_OPTS
    as_tensor = type(t) in (Tensor, Parameter)
    opening = "tensor(" if as_tensor else type(t).__name__ + "("
    indent = len(opening)
    device, dtype_name, default = str(t.device), str(t.dtype), str(get_default_dtype())
    size = [f"size={tuple(t.shape)}"]
    suffixes = [] if device == "cpu" else [f"device='{device}'"]
    dtype_obvious = dtype_name == default
    if t.is_meta:
        suffixes += size
        text = "..."
    elif t.numel() == 0:
        suffixes += size if t.dim() != 1 else []
        text = "[]"
    else:
        dtype_obvious = _is_default(dtype_name, default)
        summarize = t.numel() > opts.threshold and t.dim() > 0
        suffixes += size if opts.edgeitems == 0 else []
        if summarize and opts.edgeitems == 0:
            text = "[...]"
        elif tensor_contents is None:
            text = _contents(t, indent, opts, summarize)
    if tensor_contents is not None:
        text = tensor_contents
    if not dtype_obvious:
        suffixes.append(f"dtype={dtype_name}")
    suffixes += _grad_suffix(t)
    shown = add_suffixes(opening + text, suffixes, indent)
    return f"Parameter({shown})" if isinstance(t, Parameter) and not as_tensor else shown


def add_suffixes(text, suffixes, indent, force_newline=False):
    """The text, its suffixes on new lines where the line is full, and the closing bracket."""
    parts = [text]
    used = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or used + len(suffix) + 2 > PRINT_OPTS.linewidth:
            parts.append(",\n" + " " * indent + suffix)
            used, force_newline = indent + len(suffix), False
        else:
            parts.append(", " + suffix)
            used += len(suffix) + 2
    return "".join([*parts, ")"])


def parameter_repr(t: Tensor) -> str:
    """The text of ``repr`` for ``nn.Parameter`` and classes derived from it."""
    return "Parameter containing:\n" + tensor_repr(t)


def tensor_format(t: Tensor, spec: str) -> str:
    """``format(t, spec)``: a 0-d tensor of no class of its own formats as its number."""
    if type(t) is Tensor and t.dim() == 0 and not t.is_meta:
        return format(t.tolist(), spec)
    return object.__format__(t, spec)
