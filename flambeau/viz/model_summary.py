"""`summary`: the layers of a model as a table, with torchinfo's arguments and columns, and a forward pass's time and memory."""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from .. import Generator, rand
from ..autograd.modes import no_grad
from ..nn.module import Module
from ..nn.parameter import is_lazy
from ..tensors.device import device as as_device
from ..tensors.dtypes import dtype as dtype_type
from ..tensors.dtypes import float32
from ..tensors.tensor import Tensor

TITLES = {"kernel_size": "Kernel Shape", "input_size": "Input Shape", "output_size": "Output Shape", "num_params": "Param #",
          "params_percent": "Param %", "mult_adds": "Mult-Adds", "trainable": "Trainable", "time": "Time (ms)",
          "memory": "Output (MB)"}
NEEDS_INPUT = frozenset(("input_size", "output_size", "mult_adds", "time", "memory"))
ROW_SETTINGS = frozenset(("ascii_only", "depth", "var_names", "hide_recursive_layers"))
DEFAULT = ("output_size", "num_params", "mult_adds", "time", "memory")


def summary(model: Module, input_size: Sequence[Any] | None = None, input_data: Any = None, batch_dim: int | None = None,
            cache_forward_pass: bool | None = None, col_names: Iterable[str] | None = None, col_width: int | None = None,
            depth: int = 3, device: Any = None, dtypes: Sequence[dtype_type] | None = None, mode: str | None = None,
            row_settings: Iterable[str] | None = None, verbose: int | None = None, **kwargs: Any) -> Summary:
    """A table of the model's layers, printed and returned; without input only names and numbers of parameters.

    input_size: shapes of random input, batch included: one, or a list of them. input_data: the input itself, one tensor, a list
    of arguments or a dict of them by name; kwargs go to `forward` too. batch_dim: where to put a batch of one into each
    input_size. dtypes: of the inputs (float32). device: where model and input go; "meta" works on a copy that computes nothing.
    col_names: columns, of "input_size", "output_size", "num_params", "params_percent", "kernel_size", "mult_adds", "trainable"
    (torchinfo's), "time" and "memory". col_width: of each (25; 16 for the columns that are shown by default). depth: the
    deepest layers that are shown. mode: "eval" (the default) or "train". row_settings: of "depth" (the default), "var_names",
    "ascii_only", "hide_recursive_layers". verbose: 0 prints nothing, 1 the table, 2 single parameters too; by default 1, or 0
    where Python is asked interactively.

    Multiply-adds are counted from parameters, as torchinfo counts them, with two corrections: a linear layer works at every
    position of a sequence, and looking up an embedding multiplies nothing. Parameters that layers share count once.
    The time is that of a second forward pass (in training mode, which changes statistics, of the only one).

        >>> import flambeau as torch
        >>> table = torch.viz.summary(torch.nn.Linear(4, 2), (8, 4), verbose=0)
        >>> table.total_params, table.total_mult_adds
        (10, 80)
    """
    if cache_forward_pass:
        raise NotImplementedError("summary: cache_forward_pass is not implemented (a changed model would show old numbers)")
    given = input_data is not None or input_size is not None
    columns = (DEFAULT if given else ("num_params",)) if col_names is None else tuple(col_names)
    rows = frozenset(("depth",) if row_settings is None else row_settings)
    if col_width is None:
        col_width = 16 if col_names is None and given else 25
    if verbose is None:
        verbose = 0 if hasattr(sys, "ps1") else 1
    _check(input_data, input_size, columns, rows, col_width, mode, verbose)
    place = None if device is None else as_device(device)
    if place is not None:
        model = (copy.deepcopy(model) if place.type == "meta" else model).to(place)
    args = _inputs(model, input_data, input_size, batch_dim, place, dtypes)
    form = _Form(depth, verbose, columns, col_width, rows)
    layers = _run(model, args, kwargs, batch_dim, mode or "eval", "time" in columns) if given else _listed(model)
    result = Summary(model, layers, args, form, given)
    if verbose:
        print(result)
    return result


def _check(data: Any, size: Any, columns: tuple[str, ...], rows: frozenset[str], width: int, mode: str | None,
           verbose: int) -> None:
    if data is not None and size is not None:
        raise RuntimeError("summary: only one of (input_data, input_size) should be specified")
    for name in columns:
        if name not in TITLES:
            raise ValueError(f"summary: {name!r} is not a valid column: expected one of {', '.join(TITLES)}")
    for name in rows - ROW_SETTINGS:
        raise ValueError(f"summary: {name!r} is not a valid row setting: expected one of {', '.join(sorted(ROW_SETTINGS))}")
    if data is None and size is None and NEEDS_INPUT & set(columns):
        raise ValueError("summary: you must pass input_data or input_size in order to use columns: "
                         f"{', '.join(c for c in columns if c in NEEDS_INPUT)}")
    if width <= 0:
        raise ValueError(f"summary: column width must be greater than 0: col_width={width}")
    if mode not in (None, "train", "eval"):
        raise ValueError(f"summary: mode should be 'train' or 'eval', got {mode!r}")
    if verbose not in (0, 1, 2):
        raise ValueError(f"summary: verbose must be either 0 (quiet), 1 (default), or 2 (verbose), got {verbose!r}")


# ------------------------------------------------------------------------------------------------------------ the input
def _inputs(model: Module, data: Any, size: Any, batch_dim: int | None, place: Any, dtypes: Any) -> Any:
    """The arguments of forward: a list, or a dict of keyword arguments."""
    if data is not None:
        data = _moved(data, place)
        return data if isinstance(data, (list, tuple, Mapping)) else [data]
    if size is None:
        return []
    if not isinstance(size, (list, tuple)):
        raise TypeError("summary: input_size should be a shape or a list of shapes: a tuple or list of ints, got "
                        f"{type(size).__name__}")
    sizes = [tuple(size)] if size and isinstance(size[0], int) else [tuple(s) for s in size]
    if not sizes or any(n <= 0 for s in sizes for n in s):
        raise ValueError(f"summary: input_size should have positive sizes, got {size}")
    if dtypes is not None and len(dtypes) != len(sizes):
        raise ValueError(f"summary: {len(sizes)} inputs, but {len(dtypes)} dtypes")
    first = next(model.parameters(), None)
    target = place if place is not None else as_device("cpu") if first is None else first.device
    generator, made = Generator().manual_seed(0), []  # one of its own: the program's random numbers stay as they are
    for shape, kind in zip(sizes, dtypes or [float32] * len(sizes)):
        x = rand(shape, generator=generator)
        made.append((x if batch_dim is None else x.unsqueeze(batch_dim)).to(target).to(kind))
    return made


def _moved(data: Any, place: Any) -> Any:
    if place is None:
        return data
    if isinstance(data, Tensor):
        return data.to(place)
    if isinstance(data, Mapping):
        return {k: _moved(v, place) for k, v in data.items()}
    return type(data)([_moved(v, place) for v in data]) if isinstance(data, (list, tuple)) else data


def _first(value: Any) -> Tensor | None:
    """The tensor whose shape stands for a layer's input or output: the first, of a dict the last."""
    if isinstance(value, Tensor):
        return value
    if isinstance(getattr(value, "data", None), Tensor):  # a packed sequence
        return value.data
    if isinstance(value, Mapping):
        return _first(list(value.values())[-1]) if value else None
    return next((t for t in map(_first, value) if t is not None), None) if isinstance(value, (list, tuple)) else None


def _total_bytes(value: Any) -> int:
    if isinstance(value, Tensor):
        return value.numel() * value.element_size()
    parts = value.values() if isinstance(value, Mapping) else value if isinstance(value, (list, tuple)) else ()
    return sum([_total_bytes(v) for v in parts])


# ------------------------------------------------------------------------------------------------------------ the layers
class Layer:
    """One row: a module as it was called (or listed)."""

    def __init__(self, module: Module, name: str, depth: int, parent: Module | None):
        self.module, self.var_name, self.depth, self.parent = module, name, depth, parent
        self.class_name = type(module).__name__
        self.is_leaf_layer = not any(True for _ in module.children())
        self.depth_index = 0
        self.children: list[Layer] = []       # all below it
        self.is_recursive = False             # the same module stands higher up
        self.input_size: list[int] = []
        self.output_size: list[int] = []
        self.output_bytes = self.macs = 0
        self.seconds = 0.0
        kernel = getattr(module, "kernel_size", None)
        self.kernel_size = list(kernel) if isinstance(kernel, (tuple, list)) else kernel
        self.count()

    def count(self) -> None:
        found = self.module.named_parameters()
        self.parameters = [(name, *_counted(self.module, name, p), p) for name, p in found if not is_lazy(p)]
        self.num_params = sum([n for _, _, n, _ in self.parameters])
        self.trainable_params = sum([n for _, _, n, p in self.parameters if p.requires_grad])

    def finish(self, inputs: Any, output: Any, batch_dim: int | None) -> None:
        """What is known after the call."""
        self.count()  # a lazy layer has its parameters now
        made, given = _first(output), _first(inputs)
        self.input_size, self.output_size = _size(given, batch_dim), _size(made, batch_dim)
        self.output_bytes = 0 if made is None else made.element_size() * math.prod(self.output_size)
        self.macs = self.multiply_adds()

    def multiply_adds(self) -> int:
        if not self.output_size or "Embedding" in self.class_name:
            return 0
        out, total = self.output_size, 0
        for _, name, n, _ in self.parameters:
            if name in ("weight", "bias"):
                if "Conv" in self.class_name:
                    places = math.prod(out[:1] + out[2:])
                else:
                    places = math.prod(out[:-1]) if "Linear" in self.class_name else out[0]
                total += n * places
            elif "weight" in name or "bias" in name:  # weight_ih_l0 and such: at every step of every sequence
                total += n * math.prod(out[:2])
        return total

    @property
    def own_params(self) -> int:
        """Parameters that no row below it has."""
        below = [c for c in self.children if not c.is_recursive]
        return self.num_params - sum([c.num_params if c.is_leaf_layer else c.own_params for c in below])

    @property
    def trainable(self) -> str:
        if not self.num_params:
            return "--"
        return "True" if self.trainable_params == self.num_params else "Partial" if self.trainable_params else "False"

    def __repr__(self) -> str:
        return f"{self.class_name}: {self.depth}"


def _counted(module: Module, name: str, p: Tensor) -> tuple[str, int]:
    """A parameter's name and how many of its elements count: of a pruned one (weight_orig, weight_mask) those that are left."""
    if name.endswith("_orig"):
        owner = module.get_submodule(name.rpartition(".")[0])
        mask = getattr(owner, name.rpartition(".")[2].removesuffix("_orig") + "_mask", None)
        if isinstance(mask, Tensor):
            return name.removesuffix("_orig"), int(mask.sum())
    return name, p.numel()


def _size(tensor: Tensor | None, batch_dim: int | None) -> list[int]:
    size = [] if tensor is None else list(tensor.shape)
    if batch_dim is not None and batch_dim < len(size):
        size[batch_dim] = 1
    return size


def _places(model: Module) -> dict[Module, tuple[str, int, Module | None]]:
    """Every module's name, depth and parent; of one that is there twice, the last place."""
    found: dict[Module, tuple[str, int, Module | None]] = {}
    stack: list[tuple[str, Module, int, Module | None]] = [(type(model).__name__, model, 0, None)]
    while stack:
        name, module, depth, parent = stack.pop()
        found[module] = name, depth, parent
        stack += [(n, m, depth + 1, module) for n, m in reversed(module._modules.items()) if m is not None]
    return found


def _listed(model: Module) -> list[Layer]:
    """Rows of a model that is not run: all modules in the order in which they were made."""
    layers: list[Layer] = []
    stack: list[tuple[str, Module, int, Module | None]] = [(type(model).__name__, model, 0, None)]
    while stack:
        name, module, depth, parent = stack.pop()
        layers.append(Layer(module, name, depth, parent))
        stack += [(n, m, depth + 1, module) for n, m in reversed(module._modules.items()) if m is not None]
    return _related(layers)


def _run(model: Module, args: Any, kwargs: dict[str, Any], batch_dim: int | None, mode: str, timed: bool) -> list[Layer]:
    """Rows of a forward pass, in the order of the calls."""
    places, layers, open_calls, handles = _places(model), [], [], []

    def starts(module: Module, inputs: Any, options: Any) -> None:
        layer = Layer(module, *places[module])
        layers.append(layer)
        open_calls.append((layer, time.perf_counter()))

    def ends(module: Module, inputs: Any, options: Any, output: Any) -> None:
        layer, start = open_calls.pop()
        layer.seconds = time.perf_counter() - start
        layer.finish(inputs if inputs else options, output, batch_dim)

    training = [(m, m.training) for m in model.modules()]
    try:
        model.train(mode == "train")
        if timed and mode == "eval":
            _call(model, args, kwargs)  # what is built, loaded and allocated on first use is no part of the time
        for module in places:
            handles += [module.register_forward_pre_hook(starts, with_kwargs=True),
                        module.register_forward_hook(ends, with_kwargs=True)]
        _call(model, args, kwargs)
    except Exception as error:
        done = [layer for layer in layers if layer.output_size]
        error.add_note(f"summary: the model's forward pass failed. Layers that had run: {done}")
        raise
    finally:
        for handle in handles:
            handle.remove()
        for module, was in training:
            module.training = was
    return _related(_with_containers(layers, places))


def _call(model: Module, args: Any, kwargs: dict[str, Any]) -> None:
    with no_grad():
        if isinstance(args, Mapping):
            model(**args, **kwargs)
        else:
            model(*args, **kwargs)


def _with_containers(layers: list[Layer], places: dict[Module, Any]) -> list[Layer]:
    """Adds the modules that hold others without being called themselves, such as a ModuleList."""
    called = {layer.module for layer in layers}
    made: list[Layer] = []
    current: dict[int, Module] = {}
    for layer in layers:
        missing, parent = [], layer.parent
        while parent is not None and parent not in called and places[parent][1] > 0:
            missing.append(parent)
            parent = places[parent][2]
        for module in reversed(missing):
            if current.get(places[module][1]) is not module:
                made.append(Layer(module, *places[module]))
                current[places[module][1]] = module
        made.append(layer)
        current = {d: m for d, m in current.items() if d < layer.depth}
        current[layer.depth] = layer.module
    return made


def _related(layers: list[Layer]) -> list[Layer]:
    """Numbers rows by depth, finds what is below each, and marks modules that came before."""
    count: dict[int, int] = {}
    seen: set[Module] = set()
    for i, layer in enumerate(layers):
        layer.depth_index = count[layer.depth] = count.get(layer.depth, 0) + 1
        layer.is_recursive = layer.module in seen
        seen.add(layer.module)
        below = i + 1
        while below < len(layers) and layers[below].depth > layer.depth:
            below += 1
        layer.children = layers[i + 1:below]
    return layers


# ------------------------------------------------------------------------------------------------------------ the table
class Summary:
    """What was counted; `str()` is the table.

    >>> torch.viz.summary(nn.Linear(2, 3), (1, 2), verbose=0).total_params
    9
    """

    def __init__(self, model: Module, layers: list[Layer], inputs: Any, form: _Form, ran: bool):
        self.summary_list, self.formatting, self._ran = layers, form, ran
        sizes = {id(p): (n, n * p.element_size(), p.requires_grad) for _, _, n, p in layers[0].parameters} if layers else {}
        self.total_params = sum([n for n, _, _ in sizes.values()])
        self.trainable_params = sum([n for n, _, wanted in sizes.values() if wanted])
        self.total_param_bytes = sum([size for _, size, _ in sizes.values()])
        self.total_mult_adds = sum([layer.macs for layer in layers if layer.is_leaf_layer])
        self.total_output_bytes = 2 * sum([layer.output_bytes for layer in layers  # twice: with gradients
                                           if layer.is_leaf_layer and layer.num_params])
        self.total_input = _total_bytes(inputs)
        given = inputs.values() if isinstance(inputs, Mapping) else inputs
        self.input_size = [list(t.shape) for t in given if isinstance(t, Tensor)]
        self.seconds = layers[0].seconds if layers else 0.0

    def __str__(self) -> str:
        form = self.formatting
        form.fit(self.summary_list)
        rule = "=" * form.width()
        lines = [rule, form.header(), rule, *form.table(self.summary_list, self.total_params), rule,
                 f"Total params: {self.total_params:,}", f"Trainable params: {self.trainable_params:,}",
                 f"Non-trainable params: {self.total_params - self.trainable_params:,}"]
        if self._ran:
            mega = [n / 1e6 for n in (self.total_input, self.total_output_bytes, self.total_param_bytes)]
            lines += [f"Total mult-adds{_readable(self.total_mult_adds)}"]
            if "time" in form.columns:
                lines.append(f"Forward pass (ms): {self.seconds * 1e3:.2f}")
            lines += [rule, f"Input size (MB): {mega[0]:.2f}", f"Forward/backward pass size (MB): {mega[1]:.2f}",
                      f"Params size (MB): {mega[2]:.2f}", f"Estimated Total Size (MB): {sum(mega):.2f}"]
        return "\n".join([*lines, rule])

    __repr__ = __str__


def _readable(n: int) -> str:
    """": 80" with its unit: millions, billions or trillions."""
    for size, unit in ((1e12, "T"), (1e9, "G"), (1e6, "M")):
        if n >= size or unit == "M":
            value = n / size
            return f" ({unit}): {int(value):,}" if value.is_integer() else f" ({unit}): {value:,.2f}"
    raise AssertionError


class _Form:
    """How rows are written."""

    def __init__(self, depth: int, verbose: int, columns: tuple[str, ...], width: int, settings: frozenset[str]):
        self.depth, self.verbose, self.columns, self.col_width = depth, verbose, columns, width
        self.ascii, self.names = "ascii_only" in settings, "var_names" in settings
        self.depths, self.hide = "depth" in settings, "hide_recursive_layers" in settings
        self.name_width = 40

    def fit(self, layers: list[Layer]) -> None:
        longest = max([len(self.title(layer)) + layer.depth * 5 + 1 for layer in layers], default=0)
        self.name_width = 40 if longest < 40 else math.ceil(longest / 5) * 5

    def width(self) -> int:
        return len(self.columns) * self.col_width + self.name_width

    def title(self, layer: Layer) -> str:
        name = layer.class_name + (f" ({layer.var_name})" if self.names and layer.var_name else "")
        return name + (f": {layer.depth}-{layer.depth_index}" if self.depths and layer.depth else "")

    def start(self, depth: int) -> str:
        if depth < 2:
            return "" if not depth else "+ " if self.ascii else "├─"
        return ("|    " if self.ascii else "│    ") * (depth - 1) + ("+ " if self.ascii else "└─")

    def row(self, name: str, values: Mapping[str, str]) -> str:
        cells = [f"{values.get(c, ''):<{self.col_width}} " for c in self.columns]
        return f"{name:<{self.name_width}} {''.join(cells)}".rstrip()

    def header(self) -> str:
        return self.row("Layer (type" + " (var_name)" * self.names + ":depth-idx" * self.depths + ")", TITLES)

    def table(self, layers: list[Layer], total: int) -> Iterable[str]:
        for layer in layers:
            if layer.depth > self.depth or (self.hide and layer.is_recursive):
                continue
            yield self.row(self.start(layer.depth) + self.title(layer), self.values(layer, total))
            if self.verbose == 2:
                yield from self.parameters(layer)

    def values(self, layer: Layer, total: int) -> dict[str, str]:
        deepest = layer.depth == self.depth
        shown = layer.num_params if deepest or layer.is_leaf_layer else layer.own_params
        if not layer.num_params:
            params, percent = "--", "     --"
        elif layer.is_recursive:
            params = percent = "(recursive)"
        else:
            includes_children = deepest or layer.is_leaf_layer
            params = f"{shown:,}" if layer.trainable_params or not includes_children else f"({shown:,})"
            percent = f"{shown / total:>7.2%}"
            if shown <= 0:
                params, percent = "--", "     --"
        macs = layer.macs if layer.is_leaf_layer else sum([c.macs for c in layer.children if c.is_leaf_layer]) if deepest else 0
        return {"kernel_size": _text(layer.kernel_size), "input_size": _text(layer.input_size),
                "output_size": _text(layer.output_size), "num_params": params, "params_percent": percent,
                "mult_adds": f"{macs:,}" if macs and layer.macs > 0 else "--", "trainable": layer.trainable,
                "time": f"{layer.seconds * 1e3:.3f}" if layer.output_size else "--",
                "memory": f"{layer.output_bytes / 1e6:.3f}" if layer.output_size else "--"}

    def parameters(self, layer: Layer) -> Iterable[str]:
        own = [(name, n, p) for _, name, n, p in layer.parameters if layer.depth or "." not in name]
        for i, (name, n, p) in enumerate(own):
            size = list(p.shape)
            if name == "weight" and len(size) > 1:
                size[0], size[1] = size[1], size[0]  # inputs first
            yield self.row(self.start(layer.depth + 1) + name,
                           {"kernel_size": str(size), "num_params": f"{'└─' if i == len(own) - 1 else '├─'}{n:,}"})


def _text(value: Any) -> str:
    return str(value) if value else "--"
