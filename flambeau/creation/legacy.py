"""PyTorch's old constructors: `Tensor(2, 3)`, `FloatTensor([1, 2])`, `tensor.new(...)`."""

from __future__ import annotations

import warnings
from typing import Any

from ..backends import registry
from ..backends.cpu import creation as _cpu
from ..ops.core.row import public
from ..tensors import dtypes as _dtypes
from ..tensors.device import to_device
from ..tensors.dtypes import dtype as _dtype
from ..tensors.formats import strided
from ..tensors.tensor import Size, Tensor, wrap
from .factories import _read, empty
from .options import read_size, set_default_device

__all__ = ["set_default_tensor_type"]


def legacy_tensor(cls: type, *args: Any, device: Any = None, _d: _dtype | None = None, _on: str = "cpu") -> Tensor:
    """`Tensor(2, 3)`: uninitialised of that size; `Tensor([1, 2])`: from data; always of the default dtype."""
    if device is not None and to_device(device).type != _on:
        raise RuntimeError(f"legacy constructor expects device type: {_on} but device type: "
                           f"{to_device(device).type} was passed")
    d = _d or _dtypes.get_default_dtype()
    only = args[0] if len(args) == 1 else None
    if isinstance(only, Tensor) and (_d is None or only.dtype is d):
        made = only.detach() if only.requires_grad else wrap(only._array)
    elif isinstance(only, Tensor):
        raise TypeError(f"expected a tensor of {d}, got one of {only.dtype}: use .to({d}) to convert it")
    elif hasattr(only, "untyped"):
        made = empty(0, dtype=d).set_(only)
    elif only is not None and not isinstance(only, (int, Size)) and not _index(only):
        if isinstance(only, (float, complex)):
            raise TypeError(f"new(): data must be a sequence (got {type(only).__name__})")
        made = wrap(_read(only, d))
    else:
        size = tuple(only) if isinstance(only, Size) else read_size("new", args or (0,), single=True)
        made = wrap(registry.cpu.empty(size, d.native))
    if _on != "cpu":
        made = made.to(_on if device is None else device)
    if cls is not Tensor and issubclass(cls, Tensor):
        made.__class__ = cls
    return made


def _index(value: Any) -> bool:
    return hasattr(value, "__index__") and not _cpu.is_array(value)


class TensorTypeClass(type):
    """The old name of a dtype on a device, such as `FloatTensor`: makes tensors and serves in isinstance checks."""

    def __new__(meta, name: str, bases: tuple[type, ...], members: dict[str, Any]) -> type:
        if bases:
            raise TypeError(f"type '{bases[0].__module__}.{bases[0].__name__}' is not an acceptable base type")
        return super().__new__(meta, name, bases, members)

    def __call__(cls, *args: Any, **kwargs: Any) -> Tensor:
        _check_built(cls)
        return legacy_tensor(Tensor, *args, _d=cls.dtype, _on="cuda" if cls.is_cuda else "cpu", **kwargs)

    def __instancecheck__(cls, instance: Any) -> bool:
        return (isinstance(instance, Tensor) and instance.dtype is cls.dtype and instance.is_cuda == cls.is_cuda
                and instance.layout is cls.layout)

    def __repr__(cls) -> str:
        return f"<class '{cls.__module__}.{cls.__name__}'>"


def _check_built(kind: Any) -> None:
    """Refuses a tensor type of a device that this build has no backend for."""
    try:
        registry.backend_for(to_device("cuda" if kind.is_cuda else "cpu"))
    except Exception:
        raise TypeError(f"type {kind.__module__}.{kind.__name__} not available. Torch not compiled with CUDA "
                        "enabled.") from None


LEGACY = {d.word: d for d in _dtypes.ALL if d.word != d.name and not d.is_complex}


def legacy_class(name: str, module: str = "torch") -> type:
    return TensorTypeClass(name + "Tensor", (), {"dtype": LEGACY[name], "is_cuda": module.endswith("cuda"),
                                                 "layout": strided, "__module__": module})


for _name in LEGACY:
    globals()[_name + "Tensor"] = legacy_class(_name)
    __all__.append(_name + "Tensor")


def set_default_tensor_type(t: Any) -> None:
    """The old way of set_default_dtype and set_default_device at once.

    >>> torch.set_default_tensor_type(torch.DoubleTensor)
    >>> torch.ones(1).dtype
    torch.float64
    >>> torch.set_default_tensor_type(torch.FloatTensor)
    """
    warnings.warn("torch.set_default_tensor_type() is deprecated as of PyTorch 2.1, please use torch.set_default_dtype() "
                  "and torch.set_default_device() as alternatives.", UserWarning, stacklevel=2)
    if isinstance(t, str):
        found = globals().get(t.rpartition(".")[2]) if t.startswith("torch.") else None
        if found is None:
            raise TypeError(f"invalid type object: {t!r} is not the name of a tensor type")
        t = legacy_class(found.__name__.removesuffix("Tensor"), "torch.cuda") if t.startswith("torch.cuda.") else found
    if not isinstance(t, TensorTypeClass):
        raise TypeError("invalid type object")
    _check_built(t)
    _dtypes.set_default_dtype(t.dtype)
    set_default_device("cuda" if t.is_cuda else None)


@public(toplevel=False, out=False)
def new(self, *args, size=None, device=None) -> Tensor:
    """The old constructor, of this tensor's dtype.

    >>> torch.ones(2, dtype=torch.float64).new([1, 2])
    tensor([1., 2.], dtype=torch.float64)
    """
    if size is not None:
        return empty(size, dtype=self.dtype, device=device)
    return legacy_tensor(Tensor, *args, device=self.device if device is None and self.is_cuda else device, _d=self.dtype,
                         _on=self.device.type if self.is_cuda else "cpu")
