"""Compares flambeau's names with those of the installed PyTorch and writes docs/coverage.md.

    PYTHONPATH=. python tools/coverage.py            # writes docs/coverage.md
    PYTHONPATH=. python tools/coverage.py --missing  # prints every name that is not there, by kind, instead

A name counts as there when getattr finds it; as refused when calling it gives NotImplementedError with a sentence (its
docstring begins "Not available"); as empty when calling it changes nothing (its docstring begins "Does nothing", and
tests/test_names_without_effect.py finds functions without a body that do not say so). Names that PyTorch's modules merely
import (math, os, typing's, the classes of its compiled TorchScript) are not counted.
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import pathlib
import types
import warnings

import torch
import torch.overrides

import flambeau

MODULES = """. Tensor linalg fft special signal.windows autograd autograd.functional autograd.forward_ad autograd.graph
    autograd.function autograd.profiler func nn nn.functional nn.init nn.utils nn.utils.rnn nn.utils.parametrize
    nn.utils.parametrizations nn.parameter optim optim.lr_scheduler optim.swa_utils utils utils.data utils.checkpoint
    utils.hooks utils.dlpack utils._pytree amp overrides random testing types masked multiprocessing serialization storage
    backends cuda distributions jit sparse profiler compiler distributed fx library nested onnx export quantization ao package
    monitor hub futures accelerator""".split()
OUT = """# What flambeau has of PyTorch's names

Made by `tools/coverage.py` from PyTorch {version}: every public name of a module, and every function that PyTorch lets
subclasses override (`torch.overrides.get_testing_overrides`). "Refused" names exist and raise NotImplementedError with
a sentence that says what is missing. Names that "do nothing" can be called without effect, and their docstrings say so in
the first line: what they would change does not exist here (CUDA's caches, TorchScript). A missing name
of the top level raises `flambeau.MissingName`, which is an AttributeError (so `hasattr` says no) and a NotImplementedError
(so the message says why).

| module | names | there | do nothing | refused | missing |
| --- | --- | --- | --- | --- | --- |
{rows}

Functions that can be overridden: {overridable}; there: {present}; do nothing: {empty}; refused: {refused};
missing: {missing}.
{missing_list}

## Left out, and why
- **Named tensors, and operations on quantized, sparse and nested ones that say so**: other kinds of tensors, with kernels
  of their own. The dtypes `bits8`, `int4`, ... can be named but no tensor has them.
- **TorchScript, `torch.export`, `torch.onnx`, `torch.package`**: they describe programs for other runtimes.
  `torch.jit.script` and `trace` give back what they get; `torch.fx` is there.
- **`torch.ao`** beyond `quantize_dynamic` of linear layers, observers and fake quantization
  ([low precision](low_precision.md)), and **`torch.distributed.rpc`**: not written.
- **Vendor kernels** (`cudnn_*`, `miopen_*`, `mkldnn_*`, `fbgemm_*`): there is no such library behind flambeau.

## At the corners
`tools/corner_sweep.py` calls every operation that PyTorch has samples for with tensors of every dtype, with dimensions of
length zero, with tensors of no dimensions, and with arguments that are wrong (one missing, None, a string, a dimension out of
range).
Share of calls in which flambeau gives PyTorch's dtype, shape and values, or raises an error of the same class:

| corner | calls | agree | refused | not refused | class of error | dtype or shape | values |
| --- | --- | --- | --- | --- | --- | --- | --- |
| dtypes | 6732 | 95.9 % | 83 | 73 | 93 | 6 | 21 |
| empty | 1687 | 96.0 % | 28 | 31 | 6 | 3 | 0 |
| zero_dim | 1074 | 95.7 % | 5 | 3 | 38 | 0 | 0 |
| wrong | 5985 | 96.7 % | 16 | 93 | 77 | 0 | 10 |

`tools/suite_sweep.py` runs what PyTorch's own test files ask of every operation, module and optimizer that its testing package
describes, in a process in which `torch` means flambeau; a case counts as "otherwise" if it passes under PyTorch alone. Parts of
it, as measured: out, variants and second before the repairs that they led to (second derivatives of every twelfth operation),
the others with those of their failures gone that were run again after a repair.

| check | cases | as in PyTorch | otherwise |
| --- | --- | --- | --- |
| errors: samples that must raise, with words of the message | 683 | 97.5 % | 17 |
| out: out= of the wrong strides, shape, dtype, device | 5952 | 99.9 % | 4 |
| variants: function, method, in-place form, operator | 6237 | 99.8 % | 14 |
| noncontiguous: samples that are not contiguous | 5275 | 99.8 % | 10 |
| dtypes: which are taken, which are differentiated | 10964 | 99.9 % | 6 |
| reference: values against NumPy's | 26949 | 100.0 % | 10 |
| ufuncs: every dtype, small, large and extremal values | 1815 | 99.8 % | 3 |
| gradients: gradcheck | 2233 | 100.0 % | 1 |
| second: gradgradcheck | 208 | 100.0 % | 0 |
| forward_ad: gradcheck of forward mode | 2154 | 100.0 % | 0 |
| transforms: vjp, jvp and vmap of both, a third of the operations | 989 | 100.0 % | 0 |
| sparse: samples of sparse tensors | 495 | 96.4 % | 18 |
| module_calls: references, pickles, factory arguments | 14136 | 99.7 % | 38 |
| module_gradients | 1791 | 100.0 % | 0 |
| module_errors | 90 | 100.0 % | 0 |
| optim_errors | 124 | 100.0 % | 0 |
| optim_steps | 73 | 100.0 % | 0 |

What is otherwise: tensors of 65 dimensions; `out=` that overlaps an input only after it was resized; `Tensor.__radd__` and the
like called with a number in the tensor's place; `nansum(out=)` of another dtype; `abs_` of complex tensors; `Tensor.normal`; masked
reductions of sparse tensors without elements; complex differences of infinities; half precision in the derivative of `special.i1`.

"Values" (in the first table) are the order of equal elements of an unstable sort, products of half precision summed in another
order, and modes by number that PyTorch does not check.

## What differs
- Inside a function that `compile` captures or follows, a call of `torch.vmap` runs as outside; no program is made of it.
- Branches of `cond` and turns of `while_loop`, `scan` and `map` are part of a compiled program unless they require gradients or
  do something that can be seen from outside ([compile.md](compile.md)); those calls are followed, and turns of a scan unrolled.
  A branch whose results are unlike the other's raises in PyTorch; here the one that is chosen counts.
- Below autograd (`__torch_dispatch__`, `TorchDispatchMode`) the same operations are seen as in PyTorch, in the same order, for
  what `tests/dispatch_programs.py` lists. `nn.MultiheadAttention` splits its projection with other views, `einsum` is one
  product where it can be, `_foreach_` functions and fused recurrent layers are what they are made of or one operation, and
  where the gradients of two leaves are complete at once their order may differ. An operation without a formula of its own there
  is differentiated from plain tensors: a wrapper tensor raises NotImplementedError. Operations on tensors with a forward-mode
  tangent are not seen. Sizes are numbers: no `shape_env`, no `tracing_mode="symbolic"`. `torch._decomp` has two
  dozen decompositions.
- Inside `torch.func` transformations changes of captured tensors in place are not refused; results of
  `vmap` share memory with its inputs where PyTorch's do, but `_is_view()` says no.
- `torch.func.jvp`, `jacfwd` of a function with many more results than inputs, and `linearize` go through two backward passes;
  they nest like the rest. `hessian` takes the rows of the gradient.
- Results of `linalg` functions are laid out row by row where PyTorch's LAPACK calls leave them column by column
  (`stride()` differs, values do not).
- The indices of equal elements from an unstable `sort`, `topk`, `kthvalue` are in order of position; PyTorch's are in
  whatever order its algorithm leaves them.
- `as_strided_scatter`: the gradient of `input` is zero where `src` was written. PyTorch 2.13 returns the opposite part.
- Tensors have at most 64 dimensions (NumPy's limit).
- Conjugates and negatives are views with a bit, as in PyTorch. DLPack refuses tensors with a negative bit, which PyTorch
  exports without their sign; `_foreach_` functions in place take tensors with bits; a matrix product computes the conjugate
  first. The `.grad` of a leaf never has a bit (PyTorch's may have, which Adam then refuses). A call of a compiled function that
  takes or returns such a view is followed, not skipped.
- `complex32` has the operations that PyTorch's CPU kernels have for it (elements moved, sums, products, comparisons, norms),
  and those that only move elements besides (`flip`, `put_`, `equal`). What PyTorch refuses otherwise is refused; so are
  convolutions, `softmax` with a `dtype`, products and `linalg` of empty matrices, which PyTorch takes, and DLPack.

`python -m flambeau test_view_ops.py -k transpose` runs one of PyTorch's own test files on flambeau; the testing package
that it imports is the installed PyTorch's.
"""


def find(root: object, path: str) -> object:
    at, name = root, root.__name__
    for part in path.split("."):
        if part:
            name = f"{name}.{part}"
            at = getattr(at, part, None) or importlib.import_module(name)
    return at


def counted(value: object, name: str, module: str) -> bool:
    """Whether a name is part of PyTorch's surface and not an import of the module's own."""
    home = getattr(value, "__module__", None) or ""
    if isinstance(value, types.ModuleType):
        return module == "." and value.__name__.startswith("torch.")
    if home.split(".")[0] in ("typing", "collections", "functools", "abc", "enum", "builtins", "contextlib", "warnings",
                              "dataclasses", "weakref", "pathlib", "math", "copy", "typing_extensions", "logging", "itertools"):
        return not inspect.isclass(value) or module == "Tensor"
    if name in ("TYPE_CHECKING", "USE_GLOBAL_DEPS", "USE_RTLD_GLOBAL_WITH_LIBTORCH"):
        return False
    if home in ("torch._C", "torch") and inspect.isclass(value) and module in (".", "autograd", "autograd.profiler"):
        return hasattr(flambeau, name) or name.endswith("Storage")
    return not (isinstance(value, str) and module != ".")


def kind(value: object) -> str:
    """"refused", "empty" or "there", by the first words of the docstring."""
    words = getattr(value, "__doc__", None) or ""
    return "refused" if words.startswith("Not available") else "empty" if words.startswith("Does nothing") else "there"


def survey(module: str) -> tuple[list[str], dict[str, list[str]]]:
    """The public names of one of PyTorch's modules, and flambeau's by kind."""
    theirs = find(torch, "" if module == "." else module)
    listed = getattr(theirs, "__all__", None) if module != "." else None  # torch's own list lacks many documented functions
    names = sorted(set(listed or [n for n in dir(theirs) if counted(getattr(theirs, n, None), n, module)]))
    names = [n for n in names if not n.startswith("_")]
    found: dict[str, list[str]] = {"there": [], "empty": [], "refused": [], "missing": []}
    try:
        ours = find(flambeau, "" if module == "." else module)
    except (ImportError, AttributeError):
        return names, {**found, "missing": names}
    for n in names:
        try:
            found[kind(getattr(ours, n))].append(n)
        except (AttributeError, NotImplementedError):
            found["missing"].append(n)
    return names, found


def overridable() -> dict[str, list[str]]:
    """What torch.overrides lists, by kind."""
    spaces = {"": (torch, flambeau), "Tensor.": (torch.Tensor, flambeau.Tensor),
              "linalg.": (torch.linalg, flambeau.linalg), "fft.": (torch.fft, flambeau.fft),
              "special.": (torch.special, flambeau.special), "nn.functional.": (torch.nn.functional, flambeau.nn.functional)}
    where: dict[object, list[tuple[str, str]]] = {}
    for prefix, (theirs, _) in spaces.items():
        for n in dir(theirs):
            value = getattr(theirs, n, None)
            if callable(value) and getattr(value, "__hash__", None):
                where.setdefault(value, []).append((prefix, n))
    found: dict[str, list[str]] = {"there": [], "empty": [], "refused": [], "missing": []}
    for function in torch.overrides.get_testing_overrides():
        for prefix, n in where.get(function, []):
            value = getattr(spaces[prefix][1], n, None)
            found["missing" if value is None else kind(value)].append(prefix + n)
    return found


def row(module: str, names: list[str], found: dict[str, list[str]]) -> str:
    missing = found["missing"]
    listed = ", ".join(missing[:12]) + (f", and {len(missing) - 12} more" if len(missing) > 12 else "")
    label = "torch" if module == "." else module
    return (f"| {label} | {len(names)} | {len(found['there'])} | {len(found['empty'])} | {len(found['refused'])} | "
            f"{len(missing)}{': ' if missing else ''}{listed} |")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--missing", action="store_true")
    show = parser.parse_args().missing
    warnings.simplefilter("ignore")
    surveyed = {module: survey(module) for module in MODULES}
    functions = overridable()
    if show:
        for module, found in [*[(m, f) for m, (_, f) in surveyed.items()], ("overridable", functions)]:
            print(f"{module}: " + "; ".join(f"{kind} {len(names)}: {' '.join(names)}" for kind, names in found.items()
                                            if kind != "there" and names))
        return
    missing = functions["missing"]
    text = OUT.format(version=torch.__version__.split("+")[0], rows="\n".join(row(m, *s) for m, s in surveyed.items()),
                      overridable=sum(map(len, functions.values())), present=len(functions["there"]),
                      empty=len(functions["empty"]), refused=len(functions["refused"]), missing=len(missing),
                      missing_list="Missing: " + ", ".join(f"`{n}`" for n in missing) + "." if missing else "")
    pathlib.Path(__file__).parents[1].joinpath("docs", "coverage.md").write_text(text)
    print(f"docs/coverage.md: {len(surveyed)} modules, {len(missing)} overridable functions are missing")


if __name__ == "__main__":
    main()
