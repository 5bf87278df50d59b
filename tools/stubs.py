"""Writes the stubs from which editors and type checkers know what flambeau has.

    PYTHONPATH=. python tools/stubs.py            # writes them
    PYTHONPATH=. python tools/stubs.py --check    # says which are out of date, and fails if any is

Most names come from the operations' table when flambeau is imported, or are imported when first asked for: nobody finds them
who only reads the source. The stubs have them with their real arguments. Where a function says nothing about its result, and it
is no special case below, it is called with small tensors: one that gives a tensor each time is said to do so, others give Any.
"""

from __future__ import annotations

import argparse
import ast
import inspect
import itertools
import re
import sys
import types
import warnings
from pathlib import Path
from typing import Any

import public_names

import flambeau

HOME = Path(flambeau.__file__).parent
HEADER = '"""Made by tools/stubs.py."""\n\n'
TYPING = ("import builtins\nfrom collections.abc import Callable, Iterable, Iterator, Mapping, Sequence\n"
          "from typing import Any, NamedTuple, TypeVar, overload\n")
BUILTINS = frozenset("int float bool str bytes complex object tuple list dict set frozenset type slice BaseException".split())
KNOWN = frozenset("None Any Tensor Callable Iterable Iterator Mapping Sequence Size dtype device Generator layout "
                  "memory_format".split())

# By the name of an argument that says nothing about itself.
ARGUMENTS = {**dict.fromkeys(("input", "self", "mat1", "mat2", "tensor", "out_tensor", "condition"), "Tensor"),
             "other": "Tensor | builtins.complex", "out": "Any", "requires_grad": "builtins.bool", "keepdim": "builtins.bool",
             "dtype": "dtype | None", "device": "device | builtins.str | builtins.int | None",
             "generator": "Generator | None", "pin_memory": "builtins.bool"}

PAIRS = "sort topk kthvalue mode cummax cummin".split()     # (values, indices)
EITHER = "max min median nanmedian".split()                  # a tensor, or (values, indices) along a dimension
EXTRA_TYPES = '''
_F = TypeVar("_F", bound=Callable[..., Any])
_Self = TypeVar("_Self", bound=Tensor)


class _ValuesAndIndices(NamedTuple):
    values: Tensor
    indices: Tensor
'''
MODES = '''
class _Mode:
    def __init__(self) -> None: ...
    def __enter__(self) -> None: ...
    def __exit__(self, *exc: Any) -> None: ...
    def __call__(self, function: _F) -> _F: ...


class no_grad(_Mode): ...
class enable_grad(_Mode): ...


class set_grad_enabled(_Mode):
    def __init__(self, mode: builtins.bool) -> None: ...


class inference_mode(_Mode):
    def __init__(self, mode: builtins.bool = ...) -> None: ...


@overload
def compile(model: _F, *, fullgraph: builtins.bool = ..., dynamic: builtins.bool | None = ..., backend: Any = ...,
            mode: builtins.str | None = ..., options: Any = ..., disable: builtins.bool = ...,
            recompile_limit: builtins.int | None = ...) -> _F: ...
@overload
def compile(model: None = ..., *, fullgraph: builtins.bool = ..., dynamic: builtins.bool | None = ..., backend: Any = ...,
            mode: builtins.str | None = ..., options: Any = ..., disable: builtins.bool = ...,
            recompile_limit: builtins.int | None = ...) -> Callable[[_F], _F]: ...
'''
# Tensor's special methods: name -> arguments and result.
NUMBER = "other: Tensor | builtins.complex"
SPECIAL = {
    **{f"__{op}__": f"(self, {NUMBER}) -> Tensor" for op in
       """add radd sub rsub mul rmul truediv rtruediv floordiv rfloordiv mod rmod pow rpow lt le gt ge and or xor rand ror rxor
       lshift rshift""".split()},
    **{f"__i{op}__": f"(self, {NUMBER}) -> Tensor" for op in "add sub mul truediv floordiv mod pow and or xor".split()},
    **{f"__{op}__": "(self, other: Tensor) -> Tensor" for op in ("matmul", "rmatmul")},
    **{f"__{op}__": "(self) -> Tensor" for op in ("neg", "pos", "abs", "invert")},
    **{f"__{op}__": "(self, other: Any) -> Tensor:  # type: ignore[override]" for op in ("eq", "ne")},
    "__hash__": "(self) -> builtins.int", "__len__": "(self) -> builtins.int", "__bool__": "(self) -> builtins.bool",
    "__int__": "(self) -> builtins.int", "__float__": "(self) -> builtins.float", "__index__": "(self) -> builtins.int",
    "__complex__": "(self) -> builtins.complex", "__iter__": "(self) -> Iterator[Tensor]",
    "__contains__": "(self, element: Any) -> builtins.bool", "__getitem__": "(self, index: Any) -> Tensor",
    "__setitem__": "(self, index: Any, value: Any) -> None", "__array__": "(self, dtype: Any = ..., copy: Any = ...) -> Any",
}
PROPERTIES = {"shape": "Size", "dtype": "dtype", "device": "device", "layout": "layout", "data": "Tensor", "grad_fn": "Any",
              "itemsize": "builtins.int", "nbytes": "builtins.int", "ndim": "builtins.int", "output_nr": "builtins.int",
              **dict.fromkeys(("T", "H", "mT", "mH", "real", "imag"), "Tensor")}
SETTABLE = {"grad": "Tensor | None", "requires_grad": "builtins.bool", "data": "Tensor", "names": "Any"}
RESULTS = {"item": "Any", "tolist": "Any", "numpy": "Any", "dim": "builtins.int", "ndimension": "builtins.int",
           "numel": "builtins.int", "nelement": "builtins.int", "data_ptr": "builtins.int", "element_size": "builtins.int",
           "get_device": "builtins.int", "size": "Any", "stride": "Any", "type": "Any", "storage": "Any",
           "untyped_storage": "Any", "einsum": "Tensor", "rand": "Tensor", "randn": "Tensor", "new_empty": "Tensor",
           "new_ones": "Tensor", "new_zeros": "Tensor", "load": "Any", "backward": "None", "unique": "Any",
           "unique_consecutive": "Any", "where": "Any", "nonzero": "Any", "stft": "Tensor", "istft": "Tensor"}
CORE = "nn optim utils autograd func amp compiler distributions viz linalg fft special testing profiler".split()


# ------------------------------------------------------------------------------------------------------------ functions
def annotation(text: Any, argument: str | None = None) -> str:
    """What a function says about an argument or its result, in names that a stub has; Any where it says nothing."""
    if text is inspect.Parameter.empty or (text == "Any" and argument in ARGUMENTS):
        return ARGUMENTS.get(argument, "Any")
    if not isinstance(text, str):
        text = "None" if text is None or text is type(None) else getattr(text, "__name__", "Any")
    try:
        tree = ast.parse(text, mode="eval")
    except SyntaxError:
        return "Any"
    for node in ast.walk(tree):
        if isinstance(node, (ast.Attribute, ast.Call)) or (isinstance(node, ast.Name) and node.id not in BUILTINS | KNOWN):
            return "Any"
    names = [n for n in ast.walk(tree) if isinstance(n, ast.Name) and n.id in BUILTINS]
    for name in names:
        name.id = f"builtins.{name.id}"
    return re.sub(r"Callable(?!\[)", "Callable[..., Any]", ast.unparse(tree))


def arguments(function: Any, method: bool) -> str:
    parts, seen_star, seen_slash = [], False, False
    parameters = list(inspect.signature(function).parameters.values())
    for i, p in enumerate(parameters):
        if seen_slash and p.kind is not p.POSITIONAL_ONLY:
            parts.append("/")
        seen_slash = p.kind is p.POSITIONAL_ONLY
        if p.kind is p.KEYWORD_ONLY and not seen_star:
            parts.append("*")
        seen_star = seen_star or p.kind in (p.KEYWORD_ONLY, p.VAR_POSITIONAL)
        if method and i == 0 and not p.kind == p.VAR_POSITIONAL:
            parts.append("self")
            continue
        star = {p.VAR_POSITIONAL: "*", p.VAR_KEYWORD: "**"}.get(p.kind, "")
        kind = annotation(p.annotation, p.name)
        default = " = ..." if p.default is not p.empty else ""
        if default and p.default is None and kind not in ("Any",) and "None" not in kind:
            kind += " | None"
        parts.append(f"{star}{p.name}: {kind}{default}")
    return ", ".join(parts + ["/"] * seen_slash)


def result(name: str, function: Any) -> str:
    """The type of a function's result."""
    if name in RESULTS:
        return RESULTS[name]
    if name in PAIRS:
        return "_ValuesAndIndices"
    said = annotation(inspect.signature(function).return_annotation)
    if said != "Any" or name.startswith("set_"):
        return said
    if name.endswith("_") and not name.startswith("_"):
        return "Tensor"
    return "Tensor" if gives_tensors(function) else "Any"


def gives_tensors(function: Any) -> bool:
    """Whether a function gives a tensor for all small arguments that it takes, and takes some."""
    x = flambeau.eye(2) + 0.5
    some = (x, 1, 0.5)
    found = set()
    for count in (1, 2, 3):
        for rest in itertools.product(some, repeat=count - 1):
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    found.add(type(function(x.clone(), *rest)))
                except Exception:
                    continue
    return found == {flambeau.Tensor}


def declared(name: str, function: Any, method: bool = False) -> list[str]:
    """The lines about a function."""
    first = "self" if method else "input: Tensor"
    if name in EITHER:
        return ["@overload", f"def {name}({first}) -> Tensor: ...",
                "@overload", f"def {name}({first}, dim: builtins.int, keepdim: builtins.bool = ..., *, out: Any = ...) -> "
                "_ValuesAndIndices: ...",
                *(["@overload", f"def {name}({first}, other: Tensor, *, out: Any = ...) -> Tensor: ..."]
                  if name in ("max", "min") else [])]
    return [f"def {name}({arguments(function, method)}) -> {result(name, function)}: ..."]


# --------------------------------------------------------------------------------------------------------------- files
def tensor_stub() -> str:
    lines = [HEADER + TYPING + "\nfrom ..creation.random import Generator\nfrom .device import device\n"
             "from .dtypes import dtype\nfrom .formats import layout, memory_format\n",
             "def wrap(array: Any) -> Tensor: ...", "def is_tensor(obj: Any) -> builtins.bool: ...",
             "def copy_with_layout(source: Any, like: Any) -> Any: ...", EXTRA_TYPES,
             "\nclass Size(tuple[builtins.int, ...]):\n    def numel(self) -> builtins.int: ...\n", "\nclass Tensor:",
             "    def __init__(self, *data: Any, **options: Any) -> None: ..."]
    for name, rest in SPECIAL.items():
        head, _, comment = rest.partition(":  #")
        lines.append(f"    def {name}{head}: ...{'  #' + comment if comment else ''}")
    body = []
    for name, value in public_names.public("Tensor").items():
        if isinstance(value, property):
            kind = SETTABLE.get(name) or PROPERTIES.get(name) or (
                annotation(inspect.signature(value.fget).return_annotation) if value.fget else "Any")
            kind = "builtins.bool" if name.startswith("is_") else kind
            body += ["@property", f"def {name}(self) -> {kind}: ..."]
            if name in SETTABLE or value.fset is not None:
                body += [f"@{name}.setter", f"def {name}(self, value: {kind}) -> None: ..."]
        else:
            body += declared(name, value, method=True)
    # Inside the class `dtype`, `device` and `layout` are its attributes.
    body = [_renamed(line) for line in body]
    lines += [f"    {line}" for line in body]
    text = "\n".join(lines) + "\n"
    return text.replace("\n\nclass Tensor:", "\n\n_dtype = dtype\n_device = device\n_layout = layout\n\n\nclass Tensor:")


def _renamed(line: str) -> str:
    """A method's line with the classes' other names in its annotations."""
    head, colon, rest = line.partition("(")
    for name in ("dtype", "device", "layout"):
        rest = rest.replace(f": {name}", f": _{name}").replace(f"-> {name}", f"-> _{name}").replace(f"| {name}", f"| _{name}")
    return head + colon + rest


def torch_stub() -> str:
    lines = [HEADER + TYPING + "\nfrom .creation.random import Generator as Generator\n"
             "from .tensors.device import device as device\n"
             "from .tensors.dtypes import dtype as dtype, finfo as finfo, iinfo as iinfo\n"
             "from .tensors.formats import layout as layout, memory_format as memory_format\n"
             "from .tensors.tensor import Size as Size, Tensor as Tensor, _ValuesAndIndices, is_tensor as is_tensor\n"
             "from .amp import GradScaler as GradScaler, autocast as autocast\n"]
    lines += [f"from . import {name} as {name}" for name in CORE]
    lines += ['\n_F = TypeVar("_F", bound=Callable[..., Any])', MODES]
    done = {"Generator", "device", "dtype", "finfo", "iinfo", "layout", "memory_format", "Size", "Tensor", "is_tensor",
            "no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "compile", "GradScaler", "autocast", *CORE}
    for name in dir(flambeau):
        if name.startswith("_") or name in done or name in ("Any", "annotations", "torch"):
            continue
        value = getattr(flambeau, name, None)
        if public_names.is_refused(value):
            continue
        if inspect.isfunction(value):
            lines += declared(name, value)
        elif isinstance(value, flambeau.dtype):
            lines.append(f"{name}: dtype")
        elif isinstance(value, (flambeau.layout, flambeau.memory_format, float, bool)):
            kind = type(value).__name__
            lines.append(f"{name}: {'builtins.' * (kind in BUILTINS)}{kind}")
        elif not isinstance(value, types.ModuleType) or name in flambeau._LAZY:
            lines.append(f"{name}: Any")
    lines.append("__version__: builtins.str")
    return "\n".join(lines) + "\n"


def package_stub(package: str) -> str:
    """Of a package whose names are imported when first asked for: from where."""
    module = public_names.module(package)
    homes: dict[str, list[str]] = {}
    for name in module.__all__:
        value = getattr(module, name)
        if isinstance(value, types.ModuleType):
            homes.setdefault(".", []).append(name)
        else:
            file, folder = Path(inspect.getsourcefile(value)), HOME.joinpath(*package.split("."))
            inside = file.is_relative_to(folder) and file.stem != "__init__"
            home = "." + ".".join(file.relative_to(folder).with_suffix("").parts) if inside else "?"
            homes.setdefault(home, []).append(name)
    lines = [HEADER.rstrip()]
    for home, names in sorted(homes.items()):
        if home == "?":
            continue
        lines += [f"from {home} import {name} as {name}" for name in sorted(names)]
    rest = sorted(homes.get("?", []))
    if package == "nn":
        lines += ["from ..tensors.parameter import Parameter as Parameter", "from . import functional as functional",
                  "from . import init as init", "from . import utils as utils"]
        rest = [name for name in rest if name != "Parameter"]
    lines += ["from typing import Any\n"] if rest else []
    lines += [f"{name}: Any" for name in rest]
    return "\n".join(lines) + "\n"


def functions_stub(package: str) -> str:
    """Of a module of functions over tensors."""
    up = "." * (package.count(".") + 1 + (package == "nn.functional"))
    lines = [HEADER + TYPING + f"\nfrom {up}tensors.dtypes import dtype\nfrom {up}tensors.device import device\n"
             f"from {up}creation.random import Generator\nfrom {up}tensors.formats import layout, memory_format\n"
             f"from {up}tensors.tensor import Size, Tensor, _ValuesAndIndices\n"]
    for name, value in public_names.public(package).items():
        if inspect.isfunction(value):
            lines += declared(name, value)
        else:
            lines.append(f"{name}: Any")
    return "\n".join(lines) + "\n"


def profiler_stub() -> str:
    names = "".join(f"{name}: Any\n" for name in public_names.public("profiler"))
    return f"{HEADER}from typing import Any\n\n{names}"


FILES = {
    "tensors/tensor.pyi": tensor_stub,
    "__init__.pyi": torch_stub,
    "nn/__init__.pyi": lambda: package_stub("nn"),
    "nn/functional/__init__.pyi": lambda: functions_stub("nn.functional"),
    "optim/__init__.pyi": lambda: package_stub("optim"),
    "autograd/__init__.pyi": lambda: package_stub("autograd"),
    "tensors/parameter.pyi": lambda: f"""{HEADER}from .tensor import Tensor


class Parameter(Tensor):
    def __init__(self, data: Tensor | None = ..., requires_grad: bool = ...) -> None: ...


class Buffer(Tensor):
    def __init__(self, data: Tensor | None = ..., *, persistent: bool = ...) -> None: ...
""",
    "linalg.pyi": lambda: functions_stub("linalg"),
    "fft.pyi": lambda: functions_stub("fft"),
    "special.pyi": lambda: functions_stub("special"),
    "profiler.pyi": profiler_stub,
    "testing.pyi": lambda: HEADER + "from typing import Any\n\n"
                           "def assert_close(actual: Any, expected: Any, **options: Any) -> None: ...\n"
                           "def __getattr__(name: str) -> Any: ...\n",
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="write nothing; fail if a stub is out of date")
    check = parser.parse_args().check
    stale = []
    for file, make in FILES.items():
        text, path = make(), HOME / file
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(file)
            if not check:
                path.write_text(text, encoding="utf-8")
    print(f"{len(FILES)} stubs, {len(stale)} {'out of date' if check else 'written'}: {', '.join(stale)}")
    return int(check and bool(stale))


if __name__ == "__main__":
    sys.exit(main())
