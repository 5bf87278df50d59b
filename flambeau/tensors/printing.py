"""Text of tensors: what ``repr``, ``str`` and ``format`` show.

The work is done on plain Python numbers.  A tensor that holds more than
``threshold`` elements is cut down to its edges by slicing *before* any element
leaves the backend, so the cost of printing depends on what is shown, not on
what is stored.
"""

import contextlib
import dataclasses
import math

from ..backends.batched.arrays import BatchedArray, levels_of
from .tensor import wrap

__all__ = [
    "PRINT_OPTS",
    "PrinterOptions",
    "get_printoptions",
    "parameter_repr",
    "printoptions",
    "set_printoptions",
    "tensor_format",
    "tensor_repr",
]


# --------------------------------------------------------------------------
# Options


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


def set_printoptions(
    precision=None,
    threshold=None,
    edgeitems=None,
    linewidth=None,
    profile=None,
    sci_mode=None,
):
    """Change how tensors are printed.

    ``profile`` ('default', 'short', 'full') is applied first, the single
    options over it; an option left at None keeps its value.  ``sci_mode`` is
    the exception: None means "decide from the data", so every call sets it.
    An unknown profile name is ignored.
    """
    changes = dict(_PROFILES.get(profile, ())) if profile is not None else {}
    given = {
        "precision": precision,
        "threshold": threshold,
        "edgeitems": edgeitems,
        "linewidth": linewidth,
    }
    changes.update((name, value) for name, value in given.items() if value is not None)
    for name, value in changes.items():
        setattr(PRINT_OPTS, name, value)
    PRINT_OPTS.sci_mode = sci_mode


def get_printoptions():
    """The options in force, as a dict that ``set_printoptions`` accepts."""
    return dataclasses.asdict(PRINT_OPTS)


@contextlib.contextmanager
def printoptions(**kwargs):
    """Options that hold inside a ``with`` block only."""
    before = get_printoptions()
    set_printoptions(**kwargs)
    try:
        yield
    finally:
        set_printoptions(**before)


# --------------------------------------------------------------------------
# Columns: how one number is written, and the width all of them share


class _PlainColumn:
    """Integers and booleans: the Python text, right-aligned."""

    def __init__(self, values):
        self.width = max((len(str(v)) for v in values), default=1)

    def __call__(self, value):
        return str(value).rjust(self.width)


class _FloatColumn:
    """Real numbers, in one of three styles chosen from the finite nonzero ones.

    'whole' writes ``3.``, 'fixed' writes ``3.0000`` and 'sci' ``3.0000e+00``.
    Zeros, infinities and nans follow the style and are padded to the width but
    decide neither; among nothing but them the style is 'whole' whatever the
    ``sci_mode`` option says.
    """

    def __init__(self, values, opts):
        self.precision = opts.precision
        sizes = [v for v in values if v != 0 and math.isfinite(v)]
        whole = all(v == math.floor(v) for v in sizes)
        self.style = "whole" if whole else "fixed"
        self.width = 1
        if sizes:
            sci = opts.sci_mode
            if sci is None:
                low = min(map(abs, sizes))
                high = max(map(abs, sizes))
                sci = high / low > 1000.0 or high > 1.0e8
                sci = sci or (not whole and low < 1.0e-4)
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


# --------------------------------------------------------------------------
# Elements


_GAP = object()  # stands where elements were left out


def _shown(t, edge, summarize):
    """Nested lists of the elements that will be written, with gaps marked."""
    if not summarize:
        return t.tolist()
    size = t.shape[0]
    if t.dim() == 1:
        if size <= 2 * edge:
            return t.tolist()
        return t[:edge].tolist() + [_GAP] + t[size - edge :].tolist()
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
        rows = [
            ", ".join(cells[i : i + per_line]) for i in range(0, len(cells), per_line)
        ]
        between = ",\n" + " " * (indent + 1)
    else:
        rows = [
            "..."
            if part is _GAP
            else _layout(part, depth - 1, indent + 1, column, linewidth)
            for part in nested
        ]
        between = "," + "\n" * (depth - 1) + " " * (indent + 1)
    return "[" + between.join(rows) + "]"


def _flag(t, name):
    value = getattr(t, name)
    return value() if callable(value) else value


def _contents(t, indent, opts, summarize):
    # Slices of a tensor that requires grad would record history for nothing.
    source = t.detach() if getattr(t, "requires_grad", False) else t
    nested = _shown(source, opts.edgeitems, summarize)
    values = _leaves(nested, t.dim())
    if _flag(t, "is_complex"):
        column = _ComplexColumn(values, opts)
    elif _flag(t, "is_floating_point"):
        column = _FloatColumn(values, opts)
    else:
        column = _PlainColumn(values)
    return _layout(nested, t.dim(), indent, column, opts.linewidth)


def contents(t, indent):
    """The elements in brackets, cut down to the edges where there are many."""
    if t.numel() == 0:
        return "[]"
    return _contents(t, indent, PRINT_OPTS, t.numel() > PRINT_OPTS.threshold and t.dim() > 0)


# --------------------------------------------------------------------------
# The whole text


def _default_dtype_name():
    try:
        from flambeau.tensors.dtypes import get_default_dtype
    except ImportError:
        return "torch.float32"
    return str(get_default_dtype())


def _is_default(dtype_name, default):
    """Whether a dtype goes without saying, next to elements that show its kind."""
    if dtype_name in (default, "torch.int64", "torch.bool"):
        return True
    twin = "torch.complex128" if default == "torch.float64" else "torch.complex64"
    return dtype_name == twin


def _root_class(cls):
    """The library's own Tensor class among the bases of ``cls``."""
    for base in reversed(cls.__mro__):
        if base.__name__ == "Tensor":
            return base
    return cls


def _package(cls):
    return cls.__module__.partition(".")[0]


def _kind(t):
    """(drawn as a plain ``tensor(...)``, is a parameter) for a tensor's class."""
    cls = type(t)
    root = _root_class(cls)

    def is_parameter_class(c):
        return c.__name__ == "Parameter" and _package(c) == _package(root)

    plain = cls is root or is_parameter_class(cls)
    parameter = any(map(is_parameter_class, cls.__mro__)) or bool(
        getattr(t, "_is_param", False)
    )
    return plain, parameter


def _grad_suffix(t):
    try:
        grad_fn = getattr(t, "grad_fn", None)
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


def _size_suffix(t):
    return f"size={tuple(t.shape)}"


def tensor_repr(t, *, tensor_contents=None):
    """The text of ``repr(t)``; ``tensor_contents`` replaces the elements.

    For a Parameter this is the text without its ``Parameter containing:``
    line; see ``parameter_repr``.
    """
    if type(t._array) is BatchedArray:
        inside = repr(wrap(t._array.examples)).replace("\n", "\n    ")
        return f"BatchedTensor(lvl={len(levels_of(t._array))}, bdim=0, value=\n    {inside}\n)"
    opts = PRINT_OPTS
    plain, parameter = _kind(t)
    opening = "tensor(" if plain else type(t).__name__ + "("
    indent = len(opening)

    device = str(t.device)
    dtype_name = str(t.dtype)
    default = _default_dtype_name()
    suffixes = [] if device == "cpu" else [f"device='{device}'"]
    dtype_obvious = dtype_name == default

    if device.partition(":")[0] == "meta":
        suffixes.append(_size_suffix(t))
        text = "..."
    elif t.numel() == 0:
        if t.dim() != 1:
            suffixes.append(_size_suffix(t))
        text = "[]"
    else:
        dtype_obvious = _is_default(dtype_name, default)
        summarize = t.numel() > opts.threshold and t.dim() > 0
        if opts.edgeitems == 0:
            suffixes.append(_size_suffix(t))
        if summarize and opts.edgeitems == 0:
            text = "[...]"
        elif tensor_contents is None:
            text = _contents(t, indent, opts, summarize)
    if tensor_contents is not None:
        text = tensor_contents
    if not dtype_obvious:
        suffixes.append(f"dtype={dtype_name}")
    suffixes += _grad_suffix(t)

    whole = add_suffixes(opening + text, suffixes, indent)
    return f"Parameter({whole})" if parameter and not plain else whole


def add_suffixes(text, suffixes, indent, force_newline=False):
    """The text, its suffixes on new lines where the line is full, and the closing bracket."""
    pieces = [text]
    used = len(text) - text.rfind("\n") + 1
    for suffix in suffixes:
        if force_newline or used + len(suffix) + 2 > PRINT_OPTS.linewidth:
            pieces.append(",\n" + " " * indent + suffix)
            used, force_newline = indent + len(suffix), False
        else:
            pieces.append(", " + suffix)
            used += len(suffix) + 2
    return "".join([*pieces, ")"])


def parameter_repr(t):
    """The text of ``repr`` for ``nn.Parameter`` and classes derived from it."""
    return "Parameter containing:\n" + tensor_repr(t)


def tensor_format(t, spec):
    """``format(t, spec)``: a plain 0-d tensor formats as its number."""
    plain_class = type(t) is _root_class(type(t))
    if plain_class and t.dim() == 0 and str(t.device).partition(":")[0] != "meta":
        return format(t.tolist(), spec)
    return object.__format__(t, spec)
