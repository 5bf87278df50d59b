"""Rows of pointwise operations: the constructors `unary`, `binary` and `compare`, their fast path and promotion.

The fast path is the cost of eager mode: two plain tensors of one dtype go straight to the kernel, and recording writes
six fields. Everything else (mixed dtypes, numbers, half precision, subclasses, hooks, other devices) takes `general`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...autograd import state as _state
from ...autograd.node import FLOAT32
from ...autograd.state import state
from ...backends import registry
from ...backends.cpu.halves import cast
from ...backends.cpu.parallel import HALF
from ...backends.cpu.pointwise.loops import enter, run
from ...tensors import dtypes as _dtypes
from ...tensors.dtypes import BY_NUM, HALF_NUMS
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor, wrap
from ..core import generate
from ..core import overrides as _overrides
from ..core.row import FUNCTIONS, Row, check_dtype, check_overlap, enter_inplace, export, make_inplace, write_out

ndarray = registry.CPU_ARRAY
_asarray = registry.cpu.asarray
_NUMBERS = (bool, int, float, complex)
FLOAT16, COMPLEX64 = _dtypes.float16.native, _dtypes.complex64.native
_WIDER = {**dict.fromkeys(HALF_NUMS, FLOAT32), _dtypes.complex32.native.num: COMPLEX64}  # in which kernels compute
_KNOWN = frozenset((Tensor, Parameter, *_NUMBERS, type(None)))


_EAGER = registry.EAGER


class Pointwise(Row):
    """A row whose kernel works element by element on broadcast arguments of one dtype.

    kind: "float" takes integers as the default floating dtype; "same" keeps the promoted dtype; "bool" gives bool.
    halves: the kernel is exact enough in half precision as it is; otherwise it runs in float32 and is rounded.
    rounds: Python numbers take half tensors' dtype before they are used, as PyTorch's kernels do on a CPU.
    takes: the kinds of dtype the kernel accepts, as `check_dtype` spells them.
    check: called with the arguments, raises for those PyTorch refuses.
    numbers: which of two arguments may be Python numbers ("second", "both", "none", or "all": both at once).
    cpu_name: what PyTorch calls the kernel in errors about dtypes, where that is not the name of the function.
    refusal: a function of a dtype that it does not take, which gives another error than PyTorch's usual one, or None.
    mask: an argument that is bool whatever the others are.
    as_given: arguments that take no part in promotion and reach the kernel as they are (conditions, switches, counts).
    c: what it computes in C (cpu/pointwise/loops.py): the letters a, b, c... are the kernel's arguments in order, numbers too;
    a function of the kernel's arguments where the text depends on them. c_kinds: dtypes for which that is right, as `takes`.
    """

    def __init__(self, name: str, args: str, *, kind: str = "float", halves: bool = False, rounds: bool = False,
                 complex_ok: bool = True, takes: str = "bifc", as_given: str = "", check: Callable | None = None,
                 numbers: str = "second", c_kinds: str = "f", mask: str | None = None, cpu_name: str | None = None,
                 refusal: Callable | None = None, **options):
        super().__init__(name, args, pointwise=True, **options)
        self.kind, self.halves, self.rounds, self.check, self.c_kinds = kind, halves, rounds, check, c_kinds
        self.single = not self.constant
        self.only_tensors = {"all": (), "both": (), "second": (0,), "none": (0, 1)}[numbers]
        self.of_numbers = numbers == "all"
        self.cpu_name, self.refusal = cpu_name or name, refusal
        self.takes = takes if complex_ok else takes.replace("c", "")
        self.as_given = frozenset(self.args.index(p) for p in as_given.split())
        if self.c is not None:
            self.cpu = enter(self.kernel, len(self.args), self.c, c_kinds, self.as_given, kind == "bool",
                             None if mask is None else self.args.index(mask))

    def __call__(self, *args: Any) -> Any:
        tensors = [a for a in args if isinstance(a, Tensor)]
        if len(tensors) != len(args):
            args = tuple([a if a.__class__ in _KNOWN else plain_number(a) for a in args])
        as_given = self.as_given
        common = promoted(args if not as_given else [a for i, a in enumerate(args) if i not in as_given])
        if self.check is not None:
            self.check(*args)
        if common.letter not in self.takes:
            if self.refusal is not None and (error := self.refusal(common)) is not None:
                raise error
            check_dtype(self.cpu_name, common, self.takes)
        if self.kind == "float" and not (common.is_floating_point or common.is_complex):
            common = _dtypes.get_default_dtype()
        native = common.native
        compute = native if self.halves else _WIDER.get(native.num, native)
        widened = compute is FLOAT32 and self.c is not None and tensors and all([type(t._array) in _EAGER for t in tensors])
        given = args
        if compute is FLOAT32 and native is not FLOAT32 and not widened:
            if self.rounds:
                given = [float(_asarray(a, native)) if a.__class__ is float or a.__class__ is int else a for a in args]
            if self.c is not None and (made := self._by_halves(given)) is not None:
                return self.finish(args, made)
        arrays = []
        for i, a in enumerate(given):
            if i in as_given:
                a = a._array if isinstance(a, Tensor) else a
            elif isinstance(a, Tensor):
                a = a._array
                if widened and a.dtype.num in HALF_NUMS and (a.dtype is native or native is FLOAT32):
                    pass  # the kernel computes in float32
                elif a.dtype is not compute:
                    # The value in the half type first: that is what PyTorch computes with.
                    a = _cast(_cast(a, native) if native is not compute else a, compute)
            elif isinstance(a, _NUMBERS):
                a = number(a, compute)
            arrays.append(a)
        try:
            made = _EAGER[type(tensors[0]._array)](self.kernel, *arrays) if widened else (
                registry.common([t._array for t in tensors]) if tensors else registry.cpu).call(self.kernel, tuple(arrays))
        except ValueError:
            raise broadcast_error(*[t._array.shape for t in tensors]) from None
        if made.__class__ is not tuple:
            made = self._result(made, native, compute)
        else:
            made = tuple([self._result(m, native, compute) for m in made])
        return self.finish(args, made)

    def _by_halves(self, args: Any) -> Any:
        """The result for half precision by a loop that widens and rounds as it goes, where there is one for these arguments."""
        if state.mode & _state.FOLLOW and registry.following is not None:
            return None
        arrays = [a._array if isinstance(a, Tensor) else a for a in args]
        sizes = [a.size for a in arrays if type(a) is ndarray]
        return run(self.kernel, *arrays) if sizes and max(sizes) >= HALF and min(sizes) > 0 else None

    def _result(self, made: Any, native: Any, compute: Any) -> Any:
        if self.kind != "bool" and compute is not native:
            if made.dtype is compute:
                made = cast(made, native)
            elif compute is COMPLEX64 and made.dtype is FLOAT32:  # the size of a complex32
                made = made.astype(FLOAT16)
        return made if type(made) in registry.ARRAY_TYPES else _asarray(made)


def _cast(array: Any, native: Any) -> Any:
    if registry.following is not None and state.mode & _state.FOLLOW and type(array) is ndarray:
        return registry.backend_of(array).cast(array, native)
    if type(array) is ndarray and not array.flags.c_contiguous:  # NumPy puts repeated dimensions innermost
        return registry.cpu.copy(array, native)
    return cast(array, native)


def number(value: Any, native: Any) -> Any:
    """A Python number as a zero-dim array of the compute dtype; integers wrap around as PyTorch's do."""
    if native.kind in "iu" and value.__class__ is int:
        bits = native.itemsize * 8
        value &= (1 << bits) - 1
        if native.kind == "i" and value >> (bits - 1):
            value -= 1 << bits
    elif value.__class__ not in _NUMBERS and registry.run_time is not None:
        made = registry.run_time(value, native)
        if made is not None:
            return made
    if registry.following is not None and state.mode & _state.FOLLOW:
        return state.follower.literal(value, native)
    return _asarray(value, native)


def promoted(args: Any) -> Any:
    """PyTorch's result type of the tensors and numbers among the arguments."""
    dims = zeros = scalars = None
    for a in args:
        if isinstance(a, Tensor):
            d = BY_NUM[a._array.dtype.num]
            if a._array.ndim:
                dims = d if dims is None else _dtypes.promote_types(dims, d)
            else:
                zeros = d if zeros is None else _dtypes.promote_types(zeros, d)
        elif a.__class__ in _NUMBERS or isinstance(a, _NUMBERS):
            d = _dtypes.of_python(a)
            scalars = d if scalars is None else _dtypes.promote_types(scalars, d)
    if dims is zeros is scalars:
        raise TypeError(f"argument 'input' (position 1) must be Tensor, not {type(args[0]).__name__}")
    return _dtypes.result_type_of(dims, zeros, scalars)


def broadcast_error(*shapes: tuple[int, ...]) -> RuntimeError:
    for a in range(len(shapes) - 1):
        x, y = shapes[a], shapes[a + 1]
        for back in range(1, min(len(x), len(y)) + 1):
            if x[-back] != y[-back] and 1 not in (x[-back], y[-back]):
                return RuntimeError(f"The size of tensor a ({x[-back]}) must match the size of tensor b ({y[-back]}) "
                                    f"at non-singleton dimension {max(len(x), len(y)) - back}: shapes {list(x)} and {list(y)} "
                                    "are compared from the last dimension on, and sizes should be equal, or one of them 1")
    return RuntimeError(f"shapes {', '.join(str(list(s)) for s in shapes)} cannot be broadcast together")


# ------------------------------------------------------------------------------------------------------- unary
def unary(name: str, c: str | None = None, backward: Callable | str | None = None, *, kind: str = "float",
          inplace: bool | str = "function", method: bool = True, toplevel: bool = True, aliases: tuple[str, ...] = (),
          fast: str | None = None, fused: str | None = None, out: bool | str | None = None,
          autocast: str | None = None, **options: Any) -> Callable:
    """A pointwise operation of one tensor, with its method, in-place and out= forms, and over lists of tensors.

    inplace, out, autocast: as for `public`; out= of one that keeps the dtype must have it.
    """
    if fused is not None:
        options["fused"] = {"self": fused}
    r = Pointwise(name, "self", kind=kind, c=c, backward={"self": backward} if backward else None, **options)
    chars = fast if fast is not None else ("fd" if kind != "bool" else "fdlibB")
    r.op = op = generate.of_one(r, chars=chars, ufunc=True, fallback=general)
    _dress(op, name, r)
    if out is None:
        out = "exact" if kind == "same" else True
    export(name, op, method=method, toplevel=toplevel, aliases=aliases, out=out, autocast=autocast,
           foreach=1 if inplace else 0)
    if inplace:
        _export_inplace(op, r, "fd", aliases, inplace)
    return op


def general(r: Row, args: tuple[Any, ...], out: Any) -> Any:
    """The way around the fast path: overrides, checks of the arguments, out=."""
    op = r.op
    if _overrides.active:
        done, value = _overrides.dispatch(op, args, {} if out is None else {"out": out})
        if done:
            return value
    for i, a in enumerate(args):
        if not isinstance(a, Tensor) and a.__class__ not in _NUMBERS:
            scalar = a if (found := as_number(a)) is None and isinstance(a, _NUMBERS) else found
            if scalar is None:
                done, value = _overrides.late(op, args, {} if out is None else {"out": out})
                if done:
                    return value
                raise TypeError(f"{r.name}(): argument '{_argument(r.args[i])}' (position {i + 1}) must be Tensor, not "
                                f"{type(a).__name__}")
            args = (*args[:i], scalar, *args[i + 1:])
    if r.of_numbers and not any(isinstance(a, Tensor) for a in args):
        from ...creation.factories import tensor
        args = (tensor(args[0]), *args[1:])
    for i in r.only_tensors if len(args) > 1 and any(isinstance(a, Tensor) for a in args) else (0,):
        if not isinstance(args[i], Tensor):
            raise TypeError(f"{r.name}(): argument '{_argument(r.args[i])}' (position {i + 1}) must be Tensor, not "
                            f"{type(args[i]).__name__}")
    result = r(*args)
    if out is None:
        return result
    return write_out(r.name, out, result, args, {})


def or_not_implemented(r: Row, args: tuple[Any, ...], out: Any) -> Any:
    """`general` for Python operators: an operand that is no number gets its turn to answer (`x == None` is False)."""
    try:
        return general(r, args, out)
    except TypeError:
        if r.name == "eq" and isinstance(args[1], ndarray):  # NumPy would leave the answer to us
            from ...tensors.interop import from_numpy
            return general(r, (args[0], from_numpy(args[1])), out)
        return NotImplemented


def inplace_operator(changed: Callable) -> Callable:
    """x.add_ as `x += y`: an operand that is neither tensor nor number gets its turn to answer."""

    @functools.wraps(changed)
    def operator(self: Tensor, other: Any) -> Any:
        try:
            return changed(self, other)
        except TypeError:
            return NotImplemented

    return operator


def as_number(value: Any) -> Any:
    """NumPy scalars and the like as the Python number they stand for; None for anything else."""
    if hasattr(value, "item") and getattr(value, "ndim", 1) == 0:
        found = value.item()
        if found.__class__ is bool and value.__class__.__name__.startswith("bool"):
            return float(found)  # PyTorch takes NumPy's truth values for floats
        return found if found.__class__ in _NUMBERS else None
    return None


def plain_number(value: Any) -> Any:
    """A NumPy scalar (np.float64 is a float too) as the Python number it stands for; all else as it is."""
    return value if isinstance(value, Tensor) or (found := as_number(value)) is None else found


def _argument(name: str) -> str:
    return "input" if name == "self" else name


def _dress(op: Callable, name: str, r: Row) -> None:
    op.__name__ = op.__qualname__ = name
    op.__doc__ = f"{name}({', '.join(map(_argument, r.args))}, *, out=None): element by element" + (
        f", {r.c} in C." if isinstance(r.c, str) else ".")


def _export_inplace(op: Callable, r: Row, chars: str | None, aliases: tuple[str, ...], forms: bool | str) -> Callable:
    recorded = made = make_inplace(r.name, op)
    if len(r.args) == 2 or r.kind != "bool":
        made = generate.in_place(r, chars=chars, recorded=recorded)
        _overrides.STAND_INS[recorded] = made
        op.inplace_operator = generate.in_place(r, chars=chars, recorded=inplace_operator(recorded))
    made.__name__, made.__qualname__, made.__doc__ = r.name + "_", f"Tensor.{r.name}_", f"In-place form of {r.name}."
    enter_inplace(made, r.name, aliases, forms)
    return made


# ------------------------------------------------------------------------------------- tensors of one shape, and numbers
def of_pair(name: str, c: Any, numbers: str = "", takes: str = "f", **options: Any) -> Callable:
    """The derivative `name`(grad, self, *numbers) of a pointwise operation, in one pass."""
    r = Pointwise(name, f"grad self {numbers}", kind="same", as_given=numbers, takes=takes, c=c, **options)
    r.op = generate.of_one(r, chars="fd", ufunc=False, fallback=any_way, tensors=2)
    return r.op


def any_way(r: Row, args: tuple[Any, ...], out: None) -> Any:
    """What is not plain, of an operation without overrides and out=."""
    if not isinstance(args[0], Tensor):
        raise TypeError(f"{r.name}(): argument 'input' (position 1) must be Tensor, not {type(args[0]).__name__}")
    return r(*args)


# ------------------------------------------------------------------------------------------------------ binary
def binary(name: str, c: str | None = None, backward: tuple[Any, Any] | None = None, *,
           kind: str = "same", inplace: bool | str = True, method: bool = True, toplevel: bool = True,
           aliases: tuple[str, ...] = (), fast: str | None = None, fast_scalar: str = "fd", args: str = "self other",
           fused: tuple[str, str] | None = None, autocast: str | None = None, foreach: int = 0, rounds: bool = True,
           **options: Any) -> Callable:
    """A pointwise operation of two broadcast arguments. fast: dtype characters whose kernel needs no promotion.

    The kernel takes `out=` as NumPy's functions do. `op.operator` is the same function for use as a Python operator.
    """
    first, second = args.split()
    table = {a: f for a, f in zip((first, second), backward or ()) if f is not None}
    if fused is not None:
        options["fused"] = dict(zip((first, second), fused))
    r = Pointwise(name, args, kind=kind, c=c, backward=table or None, rounds=rounds, **options)
    r.op = op = generate.of_two(r, chars=fast, number_chars=fast_scalar, fallback=general)
    op.operator = generate.of_two(r, chars=fast, number_chars=fast_scalar, fallback=or_not_implemented)
    _dress(op, name, r)
    export(name, op, method=method, toplevel=toplevel, aliases=aliases, autocast=autocast, foreach=foreach)
    op.row = r
    if inplace:
        op.inplace = _export_inplace(op, r, fast, aliases, inplace)
    return op


def untracked(tensor: Any) -> bool:
    """Whether nothing would be recorded for this tensor: no history, and no view of one that may have some."""
    return tensor._node is None and (tensor._counter is None or tensor._base is None)


def _inplace_broadcast(target: tuple[int, ...], other: tuple[int, ...]) -> RuntimeError:
    error = broadcast_error(target, other)
    if "non-singleton" in str(error):
        return error
    from ...tensors.shapes import broadcast_shapes
    return RuntimeError(f"output with shape {list(target)} doesn't match the broadcast shape "
                        f"{list(broadcast_shapes(target, other))}")


def compare(name: str, c: str, **options: Any) -> Callable:
    """A comparison: bool result, no derivative."""
    return binary(name, c=c, kind="bool", c_kinds="fib", cpu_name=f"{name}_cpu", **options)


generate.knows(broadcast_error=broadcast_error, inplace_broadcast=_inplace_broadcast, number=number,
               check_overlap=check_overlap)

__all__ = ["Pointwise", "unary", "binary", "compare", "promoted", "number", "broadcast_error", "general", "wrap",
           "_state"]


def result_type(tensor1=None, tensor2=None, *, tensor=None, other=None, scalar=None, scalar1=None, scalar2=None) -> Any:
    """The dtype that an operation on two tensors or numbers computes in."""
    given = [v for v in (tensor1, tensor2, scalar, scalar1, scalar2, tensor, other) if v is not None]
    if len(given) != 2:
        raise TypeError(f"result_type(): expected two tensors or numbers, got {len(given)}")
    tensor1, tensor2 = given
    for position, value in enumerate((tensor1, tensor2)):
        if not isinstance(value, (Tensor, bool, int, float, complex)):
            raise TypeError(f"result_type(): argument 'tensor{position + 1}' must be Tensor or Number, not "
                            f"{type(value).__name__}")
    return promoted((tensor1, tensor2))


FUNCTIONS["result_type"] = result_type
