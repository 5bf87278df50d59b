"""`FakeTensor`: a tensor with shape, dtype and device, but no elements. Operations on it follow the rules of meta tensors."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from ..autograd.state import state
from ..backends.facts import DYNAMIC
from ..backends.meta import wrapped
from ..ops.core.overrides import _disabled_torch_function_impl
from ..ops.dispatch import calls
from ..tensors.parameter import Parameter
from ..tensors.tensor import Tensor
from ..utils._python_dispatch import TorchDispatchMode
from ..utils._pytree import tree_leaves, tree_map
from ..utils.weak import WeakTensorKeyDictionary

__all__ = ["DataDependentOutputException", "DynamicOutputShapeException", "FakeTensor", "FakeTensorMode",
           "UnsupportedFakeTensorException", "UnsupportedOperatorException", "is_fake", "maybe_get_fake_mode",
           "unset_fake_temporarily"]


class UnsupportedFakeTensorException(RuntimeError):
    """A tensor that cannot be had without elements."""


class _OfOperation(RuntimeError):
    """Names the operation that asked for too much."""

    def __init__(self, func: Any):
        super().__init__(func)
        self.func = func


class DynamicOutputShapeException(_OfOperation):
    """The shape of a result depends on elements, which are not there."""


class DataDependentOutputException(_OfOperation):
    """A result is an element, which is not there."""


class UnsupportedOperatorException(_OfOperation):
    """Nothing says which geometry the results have."""


_OF_VALUES = frozenset("_local_scalar_dense equal allclose is_nonzero".split())


class FakeTensor(Tensor):
    """elem: the meta tensor that operations run on; fake_device: where the tensor says that it is."""

    elem: Any
    fake_device: Any
    fake_mode: Any
    constant: Any = None
    __torch_function__ = _disabled_torch_function_impl

    @staticmethod
    def __new__(cls, fake_mode: Any, elem: Tensor, device: Any, constant: Any = None, **more: Any) -> Any:
        import flambeau
        device = flambeau.device(device)
        if device.type not in ("cpu", "meta") and device.index is None:
            device = flambeau.device(device.type, 0)
        if not elem.is_meta:
            raise AssertionError(f"elem.device.type must be 'meta', got {elem.device.type}")
        made = object.__new__(cls)
        made._array = wrapped.make(tuple(elem.shape), tuple(elem.stride()), elem.storage_offset(), elem.dtype.native, device)
        made._node = made._counter = None
        made.elem, made.fake_device, made.fake_mode, made.constant = elem, device, fake_mode, constant
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        modes = {id(t.fake_mode): t.fake_mode for t in tree_leaves((args, kwargs or {})) if isinstance(t, FakeTensor)}
        if len(modes) > 1:
            raise AssertionError("Mixing fake modes NYI")
        with next(iter(modes.values())):
            return func(*args, **(kwargs or {}))

    @staticmethod
    def from_tensor(t: Tensor, fake_mode: FakeTensorMode) -> FakeTensor:
        return fake_mode.from_tensor(t)

    def tolist(self) -> Any:
        raise DataDependentOutputException("tolist")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        import flambeau
        place = f"device='{self.fake_device}', " if self.fake_device.type != "cpu" else ""
        more = f", dtype={self.dtype}" if self.dtype is not flambeau.get_default_dtype() else ""
        if self.grad_fn is not None:
            more += f", grad_fn=<{self.grad_fn.name()}>"
        elif self.requires_grad:
            more += ", requires_grad=True"
        return f"FakeTensor(..., {place}size={tuple(self.shape)}{more})"

    def __deepcopy__(self, memo: Any) -> Any:
        with self.fake_mode:
            made = self.detach().clone()
        made = made.requires_grad_() if self.requires_grad and self.is_leaf else made
        memo[id(self)] = made
        return made


def is_fake(x: object) -> bool:
    """Whether a value is a FakeTensor (or a Parameter of one)."""
    return isinstance(x, FakeTensor)


def maybe_get_fake_mode(t: Any) -> Any:
    """The mode that a fake tensor belongs to, None for any other."""
    return t.fake_mode if isinstance(t, FakeTensor) else None


class FakeTensorMode(TorchDispatchMode):
    """A `with` block in which tensors are made without elements, and operations on such tensors give more of them.

    allow_non_fake_inputs: plain tensors that meet fake ones become fake. Sizes are numbers: shape_env is not implemented.
    """

    def __init__(self, *, allow_fallback_kernels: bool = True, allow_non_fake_inputs: bool = False, shape_env: Any = None,
                 static_shapes: bool | None = None, export: bool = False):
        super().__init__()
        if shape_env is not None:
            raise NotImplementedError("FakeTensorMode: symbolic sizes (shape_env) are not implemented in flambeau")
        self.allow_fallback_kernels, self.allow_non_fake_inputs = allow_fallback_kernels, allow_non_fake_inputs
        self.shape_env, self.static_shapes = None, True
        self._known = WeakTensorKeyDictionary()
        self._entered: list[bool] = []

    def __enter__(self) -> FakeTensorMode:
        inside = bool(state.dispatch_modes) and state.dispatch_modes[-1] is self
        self._entered.append(not inside)
        return self if inside else super().__enter__()

    def __exit__(self, *exc: Any) -> None:
        if self._entered.pop():
            super().__exit__(*exc)

    # ------------------------------------------------------------------------------------------------- conversion
    def from_tensor(self, tensor: Tensor, *, static_shapes: bool | None = None, source: Any = None,
                    symbolic_context: Any = None, trace: bool = True) -> Any:
        """The fake of a tensor: its shape, strides, dtype, device and whether it requires grad. One tensor has one fake."""
        import flambeau
        if isinstance(tensor, FakeTensor):
            if tensor.fake_mode is not self:
                raise AssertionError("Mixing fake modes NYI")
            return tensor
        if tensor.is_sparse:
            raise UnsupportedFakeTensorException("sparse tensors have no fake in flambeau")
        known = self._known.get(tensor)
        if known is not None:
            return known
        with calls.no_dispatch(), flambeau.no_grad():
            elem = flambeau.empty_strided(tensor.size(), tensor.stride(), dtype=tensor.dtype, device="meta")
        made = FakeTensor(self, elem, tensor.device)
        if isinstance(tensor, Parameter):
            made = flambeau.nn.Parameter(made, tensor.requires_grad)
        elif tensor.requires_grad:
            made.requires_grad_()
        self._known[tensor] = made
        return made

    def _fake(self, meta: Any, device: Any) -> Any:
        return FakeTensor(self, meta, device) if isinstance(meta, Tensor) else meta

    # ------------------------------------------------------------------------------------------------- operations
    def __torch_dispatch__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = dict(kwargs or {})
        name = func._opname
        if name == "lift_fresh":
            return self._constant(args[0])
        if name in _OF_VALUES:
            return self._value(func, args, kwargs)
        tensors = [t for t in tree_leaves((args, kwargs)) if isinstance(t, Tensor)]
        plain = [t for t in tensors if not isinstance(t, FakeTensor)]
        if plain and not self.allow_non_fake_inputs and not all([type(t)._dispatches for t in plain]):
            raise AssertionError(f"Please convert all Tensors to FakeTensors first or instantiate FakeTensorMode with "
                                 f"'allow_non_fake_inputs'. Found in {func}({', '.join([repr(t) for t in plain])})")
        if (DYNAMIC.get(name) is True and name != "masked_scatter") or name.startswith("unique") or (
                name == "index" and _has_mask(args)):
            raise DynamicOutputShapeException(func)
        return self._run(func, args, kwargs, tensors)

    def _run(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Tensor]) -> Any:
        import flambeau
        if func.fake is not None:  # of a custom operation: it is told by its author
            with self:
                return func.fake(*args, **kwargs)
        tensors = [self.from_tensor(t) if not isinstance(t, FakeTensor) else t for t in tensors]
        known = self._of_constants(func, args, kwargs, tensors)
        device = _common_device(func, tensors)
        if "device" in func._schema.by_name:
            given = kwargs.get("device")
            device = flambeau.device(given) if given is not None else device or flambeau.device("cpu")
            kwargs["device"] = flambeau.device("meta")
            kwargs.pop("pin_memory", None)
        with calls.no_dispatch():
            unwrapped = tree_map(self._elem, (args, kwargs))
            made = func(*unwrapped[0], **unwrapped[1])
        if func._schema.is_mutable:
            written = [v for a, v in zip(func._schema.positional, args) if a.is_write]
            for t in written:
                _follow(t)
                t.constant = known
            if len(func._schema.returns) == len(written) == 1:
                return written[0]
        made = tree_map(lambda x: self._fake(x, device), tuple(made) if isinstance(made, tuple) else made)
        if isinstance(made, FakeTensor):
            made.constant = known
        return made

    def _of_constants(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: list[Any]) -> Any:
        """The value of a result, where those of all arguments are known: counters of steps, say."""
        if not tensors or any([t.constant is None for t in tensors]) or len(func._schema.returns) != 1:
            return None
        with calls.no_dispatch():
            given = tree_map(lambda x: x.constant if isinstance(x, FakeTensor) else x, (args, kwargs))
            made = func(*given[0], **given[1])
        return made if isinstance(made, Tensor) and made.numel() == 1 else None

    def _elem(self, value: Any) -> Any:
        if isinstance(value, FakeTensor):
            return value.elem
        return self.from_tensor(value).elem if isinstance(value, Tensor) else value

    def _constant(self, tensor: Tensor) -> Any:
        """A tensor that Python data was made into: its elements are known."""
        if isinstance(tensor, FakeTensor):
            return tensor
        made = self.from_tensor(tensor)
        if tensor.numel() == 1:
            made.constant = tensor
        return made

    def _value(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        known = [getattr(a, "constant", a) if isinstance(a, FakeTensor) else a for a in args]
        if any([k is None for k in known]):
            raise DataDependentOutputException(func)
        with calls.no_dispatch():
            return func(*known, **kwargs)


def _has_mask(args: tuple[Any, ...]) -> bool:
    import flambeau
    return any([isinstance(i, Tensor) and i.dtype in (flambeau.bool, flambeau.uint8) for i in args[1]])


def _common_device(func: Any, tensors: list[Any]) -> Any:
    """The device of the result; tensors without dimensions may join any."""
    found = first = None
    for t in tensors:
        if found is None or (found.type == "cpu" and not first.ndim and t.fake_device.type != "cpu"):
            found, first = t.fake_device, t
        elif t.fake_device != found and t.ndim:
            raise RuntimeError(f"Unhandled FakeTensor Device Propagation for {func}, found two different devices {found}, "
                               f"{t.fake_device}")
    return found


def _follow(tensor: Any) -> None:
    """After a change in place: the fake has the geometry of its elem."""
    elem = tensor.elem
    if (tuple(elem.shape), elem.stride()) != (tuple(tensor.shape), tensor.stride()):
        tensor._array = wrapped.make(tuple(elem.shape), tuple(elem.stride()), elem.storage_offset(), elem.dtype.native,
                                     tensor.fake_device)


@contextlib.contextmanager
def unset_fake_temporarily() -> Iterator[Any]:
    """Inside, no FakeTensorMode is entered."""
    modes = state.dispatch_modes
    at = next((i for i, m in enumerate(modes) if isinstance(m, FakeTensorMode)), None)
    if at is None:
        yield None
        return
    kept = list(modes)
    fake = modes.pop(at)
    try:
        yield fake
    finally:
        modes[:] = kept
