"""How tests compare: one `same` for values of every kind, and what makes two values to compare.

A number may differ from the expected one by as much as its Tolerance allows. Where a test says nothing it is `by_dtype`, and
integers, booleans and text are always compared exactly. A test that can be stricter says so at the call.
"""

from __future__ import annotations

import contextlib
import ctypes
import re
import warnings
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

import flambeau
from flambeau import native
from flambeau.backends.cpu.table import KERNELS

MODULES = {"torch": torch, "flambeau": flambeau}
TENSORS = (torch.Tensor, flambeau.Tensor)


class Tolerance(NamedTuple):
    """The largest of three errors is allowed."""
    relative: float             # of the element
    absolute: float             # near zero, where terms have cancelled
    of_largest: float = 0.0     # of the array's largest element: sums of such terms err by as much wherever they end up


EXACT = Tolerance(0.0, 0.0)
DTYPES = {
    # Two libraries add the same terms in different orders. A sum of n terms then differs by some sqrt(n) units in the last
    # place (1.2e-7 of a float32, 2.2e-16 of a float64); the tests' sums have at most a few thousand terms.
    "float32": Tolerance(1e-5, 1e-6), "complex64": Tolerance(1e-5, 1e-6),
    "float64": Tolerance(1e-9, 1e-11), "complex128": Tolerance(1e-9, 1e-11),
    "float": Tolerance(1e-5, 1e-6),  # a number of Python's, which often was a float32 before
    # Half precision is computed in float32 and rounded once: both libraries get the same number, unless it lies between two.
}


def by_dtype(dtype: str) -> Tolerance:
    return DTYPES.get(dtype, EXACT)


def rounding(ulps: float) -> Callable[[str], Tolerance]:
    """So many units in the last place: of the element, of 1, or of the largest element."""
    return lambda dtype: Tolerance(*[ulps * float(np.finfo(dtype).eps)] * 3)


def allowed(tolerance: Any, dtype: str) -> Tolerance:
    """A Tolerance, a function of the dtype that gives one (None: by_dtype), or one number: relative above 1, absolute below."""
    made = by_dtype(dtype) if tolerance is None else tolerance(dtype) if callable(tolerance) else tolerance
    return made if isinstance(made, Tolerance) else Tolerance(made, made)


def array(tensor: Any) -> np.ndarray:
    """The elements of either library's tensor. What NumPy has no dtype for becomes float32 or complex64, which
    hold all of its values."""
    tensor = tensor.detach()
    if tensor.layout is not (torch if isinstance(tensor, torch.Tensor) else flambeau).strided:
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg()
    tensor = tensor.clone() if tensor._is_zerotensor() else tensor
    if "bfloat16" in str(tensor.dtype) or "float8" in str(tensor.dtype):
        tensor = tensor.float()
    if "complex32" in str(tensor.dtype):
        tensor = tensor.cfloat()
    return tensor.numpy()


def same_elements(expected: np.ndarray, got: np.ndarray, tolerance: Any = None, where: str = "", dtype: str = "") -> None:
    """Asserts that two arrays have one shape and agree (not a number agrees with itself, 0 with -0)."""
    assert expected.shape == got.shape, f"{where}: shape {got.shape} instead of {expected.shape}"
    right = (expected == got) | ((expected != expected) & (got != got))
    if expected.dtype.kind in "fc" and not right.all():
        limit = allowed(tolerance, dtype or expected.dtype.name)
        size = np.abs(expected.astype(np.result_type(expected, np.float64), copy=False))
        with np.errstate(invalid="ignore"):
            largest = np.max(size, initial=0.0, where=np.isfinite(size))
            right |= np.abs(got.astype(np.result_type(got, np.float64), copy=False) - expected) <= np.maximum(
                limit.relative * np.where(np.isfinite(size), size, 0.0), max(limit.absolute, limit.of_largest * largest))
    wrong = np.argwhere(~np.asarray(right))
    shown = [(tuple(map(int, i)), got[tuple(i)], "instead of", expected[tuple(i)]) for i in wrong[:5]]
    assert not len(wrong), f"{where}: {len(wrong)} of {expected.size} {dtype or expected.dtype} elements differ: {shown}"


def neutral(text: str) -> str:
    """Text without what may differ: addresses, and where a class lives."""
    text = re.sub(r" at 0x[0-9a-f]+", "", text)
    return re.sub(r"\b(torch|flambeau)(\.\w+)*\.(?=[A-Z]\w+(['\" ]|$))", "", text)


def same_tensors(expected: Any, got: Any, tolerance: Any, where: str, graph: bool, strides: bool) -> None:
    assert isinstance(got, TENSORS), f"{where}: {got!r} instead of {expected!r}"
    facts = [(str(t.dtype), tuple(t.shape), t.requires_grad, str(t.device)) for t in (expected, got)]
    assert facts[0] == facts[1], f"{where}: {facts[1]} instead of {facts[0]}"
    if graph:
        nodes = [t.grad_fn and t.grad_fn.name() for t in (expected, got)]
        assert nodes[0] == nodes[1], f"{where}: made by {nodes[1]} instead of {nodes[0]}"
    if strides and expected.numel():
        assert expected.stride() == got.stride(), f"{where}: strides {got.stride()} instead of {expected.stride()}"
    if expected.device.type != "meta":
        same_elements(array(expected), array(got), tolerance, where, facts[0][0].partition(".")[2])


def same(expected: Any, got: Any, tolerance: Any = None, where: str = "result", graph: bool = False, strides: bool = False,
         ) -> None:
    """Asserts that two values agree: tensors and arrays in dtype, shape and elements (tensors in device and requires_grad too),
    containers part by part, errors and classes by name, what else belongs to a library by how it prints itself.

    graph: the names of tensors' nodes too. strides: their strides too.
    """
    def differs() -> str:
        return f"{where}: {got!r} instead of {expected!r}"

    if isinstance(expected, TENSORS):
        same_tensors(expected, got, tolerance, where, graph, strides)
    elif isinstance(expected, (np.ndarray, np.generic)):
        assert isinstance(got, (np.ndarray, np.generic)) and expected.dtype == got.dtype, differs()
        same_elements(np.asarray(expected), np.asarray(got), tolerance, where)
    elif isinstance(expected, dict):
        assert isinstance(got, dict), differs()
        keys = [[k if type(k).__module__ == "builtins" else str(k) for k in x] for x in (expected, got)]
        assert keys[0] == keys[1], differs()
        for key, a, b in zip(expected, expected.values(), got.values()):
            same(a, b, tolerance, f"{where}[{key!r}]", graph, strides)
    elif isinstance(expected, (list, tuple)):
        kinds = [type(x).__name__.removesuffix("_out") for x in (expected, got)]  # (PyTorch's named tuples; out= has its own)
        assert kinds[0] == kinds[1] and len(expected) == len(got), differs()
        for i, (a, b) in enumerate(zip(expected, got)):
            same(a, b, tolerance, f"{where}[{i}]", graph, strides)
    elif hasattr(expected, "__next__"):
        same(list(expected), list(got), tolerance, where, graph, strides)
    elif isinstance(expected, (float, complex)):
        assert type(expected) is type(got), differs()
        same_elements(np.asarray(expected), np.asarray(got), tolerance, where, "float")
    elif isinstance(expected, (Exception, type)):
        kinds = [x if isinstance(x, type) else type(x) for x in (expected, got)]
        assert isinstance(got, (Exception, type)) and kinds[0].__name__ == kinds[1].__name__, differs()
    elif hasattr(expected, "next_functions"):
        assert hasattr(got, "next_functions") and expected.name() == got.name(), differs()
    elif type(expected) is type(got) and type(expected).__module__ == "builtins":
        assert expected == got, differs()
    else:
        texts = [(type(x).__name__, neutral(repr(x))) for x in (expected, got)]
        assert texts[0] == texts[1], differs()


# One program, two libraries

def outcome(program: Callable[[Any], Any], module: Any) -> tuple[Any, list]:
    """What a function of the library returns or raises, and the warnings on the way."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = program(module)
            result = list(result) if hasattr(result, "__next__") else result
        except Exception as error:
            result = error
    return result, caught


def agree(program: Callable[[Any], Any], tolerance: Any = None, graph: bool = True) -> Any:
    """Asserts that both libraries return the same, or raise errors of the same type. Gives what PyTorch did."""
    (expected, _), (got, _) = [outcome(program, m) for m in MODULES.values()]
    if isinstance(got, Exception) and not isinstance(expected, Exception):
        raise AssertionError(f"PyTorch returns {expected}, flambeau raises {got!r}") from got
    same(expected, got, tolerance, graph=graph)
    return expected


def agree_in_words(program: Callable[[Any], Any], text: bool = True, warned: bool = True, tolerance: Any = EXACT) -> Any:
    """`agree` to the last bit, and in the texts of errors (text) and warnings (warned) too. Gives what PyTorch did."""
    said = []

    def listened(module):
        result, caught = outcome(program, module)
        said.append([(w.category.__name__, neutral(str(w.message))) for w in caught])
        said[-1] += [neutral(str(result))] if text and isinstance(result, Exception) else []
        if isinstance(result, Exception):
            raise result
        return result

    expected = agree(listened, tolerance, graph=False)
    if not warned:
        said = [[x for x in s if isinstance(x, str)] for s in said]
    assert said[0] == said[1], f"PyTorch says {said[0]}, flambeau {said[1]}"
    return expected


def both_raise(program: Callable[[Any], Any]) -> None:
    """Both libraries refuse with the same type of error, or flambeau with a more special one."""
    (expected, _), (got, _) = [outcome(program, m) for m in MODULES.values()]
    assert isinstance(expected, Exception), f"PyTorch does not refuse this: {expected}"
    assert type(got).__name__ == type(expected).__name__ or isinstance(got, type(expected)), f"{got!r} instead of {expected!r}"


def agree_from_seed(program: Callable[[Any], Any], seed: int, tolerance: Any = EXACT) -> Any:
    """`agree` to the last bit, strides included, with generators of one seed, which are left in one state. Gives PyTorch's."""
    found = []
    for module in MODULES.values():
        module.manual_seed(seed)
        found.append((outcome(program, module)[0], module.get_rng_state()))
    same(*found, tolerance, strides=True)
    return found[0][0]


def leaf(module: Any, *values: Any, **options: Any) -> Any:
    """A leaf with these elements, or with 1 and 2."""
    return module.tensor(list(values) or [1.0, 2.0], requires_grad=True, **options)


class Programs(list):
    """A table of programs: `@programs` adds one; `ids` names them for pytest."""

    def __call__(self, program):
        self.append(program)
        return program

    @property
    def ids(self):
        return [p.__name__ for p in self]


def agree_on(source: str, warned: bool = True, names: Callable[[Any], dict] = lambda module: {}) -> None:
    """Asserts that an expression means the same in both libraries, to the last bit, strides included.

    Errors may be more special than PyTorch's. warned: flambeau warns where PyTorch does. names: what the expression may use
    besides `torch`, `np`, `nan` and `inf`.
    """
    def program(module):
        module.manual_seed(17)
        return eval(source, {"torch": module, "np": np, "nan": float("nan"), "inf": float("inf"), **names(module)})

    (expected, theirs), (got, ours) = [outcome(program, m) for m in MODULES.values()]
    if isinstance(expected, Exception):
        assert isinstance(got, type(expected)), f"{source}: PyTorch raises {expected!r}, flambeau gives {got!r}"
        return
    if isinstance(got, Exception):
        raise AssertionError(f"{source}: PyTorch gives {expected}, flambeau raises {got!r}") from got
    same(expected, got, EXACT, source, strides=True)
    if warned:
        theirs, ours = ([w for w in said if not issubclass(w.category, DeprecationWarning)] for said in (theirs, ours))
        assert bool(theirs) <= bool(ours), f"{source}: PyTorch warns, flambeau does not"


# One kernel, in C and in NumPy

def products(terms: int) -> Callable[[str], Tolerance]:
    """For sums of so many products of standard normal numbers: four times what a random walk of roundings comes to."""
    return lambda dtype: Tolerance(0.0, {"float32": 2e-6, "float64": 4e-15}[dtype] * max(4.0, terms ** 0.5) * 4)


def twin(x: Any) -> Any:
    """A copy of an array with its strides. (Nobody can change one that cannot be written.)"""
    if not isinstance(x, np.ndarray) or not x.flags.writeable:
        return x
    if not x.size or x.flags.c_contiguous:
        return x.copy()
    low, high = np.lib.array_utils.byte_bounds(x)
    memory = np.frombuffer(ctypes.string_at(low, high - low), np.uint8).copy()
    return np.ndarray(x.shape, x.dtype, memory, x.ctypes.data - low, x.strides)


def native_agrees(kernel: str, *args: Any, tolerance: Any = EXACT) -> Any:
    """Asserts that the native kernel does what NumPy's does, to the arguments too. Gives NumPy's result."""
    found = []
    for off in (True, False):
        held = [twin(a) for a in args]
        with native.off() if off else contextlib.nullcontext():
            made = KERNELS[kernel](*held)
        found.append(([made], [a for a in held if isinstance(a, np.ndarray)]))
    same(*found, tolerance, kernel)
    return found[0][0][0]
