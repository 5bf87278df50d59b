"""A tensor's own memory: resizing it, pointing the tensor at other memory, sharing it between processes."""

from __future__ import annotations

import warnings
from typing import Any

from ...autograd.modes import is_inference_mode_enabled
from ...autograd.node import AccumulateGrad
from ...autograd.views import written
from ...backends import pending, registry
from ...backends.strides import contiguous_strides
from ...creation.factories import empty
from ...settings import fills_memory
from ...tensors.shapes import numel, shape_of
from ...tensors.tensor import Tensor, wrap
from ..core.row import public
from ..pointwise.convert import format_name, format_strides


def point_at(self: Tensor, array: Any) -> Tensor:
    """Makes the tensor show another array."""
    self._array = array
    return self


def resize(self: Tensor, shape: tuple[int, ...], strides: tuple[int, ...] | None = None) -> Tensor:
    """Gives the tensor another shape over its memory, which grows (keeping its bytes) when it is too small."""
    strides = strides or contiguous_strides(shape)
    array = self._array
    if array.shape == shape and self.stride() == strides:
        return self
    backend = registry.backend_of(array)
    return point_at(self, backend.resized(array, shape, strides))


def resize_out(out: Tensor, shape: Any, strides: tuple[int, ...] | None = None) -> Tensor:
    """Makes a tensor given as out= fit; PyTorch warns when it held something."""
    shape = tuple(shape)
    if out._array.shape == shape:
        return out
    if out._array.size:
        warnings.warn(f"An output with one or more elements was resized since it had shape {list(out.shape)}, which "
                      f"does not match the required output shape {list(shape)}. This behavior is deprecated, and in a "
                      "future PyTorch release outputs will not be resized unless they have zero elements. You can "
                      "explicitly reuse an out tensor t by resizing it, inplace, to zero elements with t.resize_(0).",
                      UserWarning, stacklevel=4)
    return resize(out, shape, strides)


def _check_resizable(self: Tensor) -> None:
    if self.requires_grad and not is_inference_mode_enabled():
        raise RuntimeError("cannot resize variables that require grad")


def _fill_added(self: Tensor, before: int) -> None:
    """Fills the elements by which a resized tensor's storage grew (NaN, or the largest number)."""
    count = self.untyped_storage().nbytes() // self.itemsize
    if count > before:
        self.detach().as_strided((count - before,), (1,), before).copy_(empty(count - before, dtype=self.dtype))


def _resize_(self: Tensor, *size: Any, memory_format: Any = None) -> Tensor:
    """Changes the tensor's shape in place; new elements are uninitialised."""
    shape = shape_of(size)
    if any(n < 0 for n in shape):
        raise RuntimeError(f"Trying to create tensor with negative dimension: {list(shape)}")
    _check_resizable(self)
    name = format_name(memory_format, "contiguous")
    if numel(shape) * self.itemsize >= 1 << 62:
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)}")
    if self._array.shape != shape or memory_format is not None:  # else nothing changes, not even the version
        before = self.untyped_storage().nbytes() // self.itemsize if fills_memory() else None
        resize(self, shape, format_strides(shape, "contiguous" if name == "preserve" else name))
        written(self)
        if before is not None:
            _fill_added(self, before)
    return self


def _resize_as_(self: Tensor, the_template: Tensor, *, memory_format: Any = None) -> Tensor:
    """resize_ to the shape of another tensor."""
    if format_name(memory_format, "contiguous") == "preserve":
        from ..pointwise.convert import suggested_format
        memory_format = suggested_format(the_template)
    return _resize_(self, the_template._array.shape, memory_format=memory_format)


public(_resize_, name="resize_", toplevel=False, out=False)
public(_resize_as_, name="resize_as_", out=False)


def _resize(self: Tensor, *sizes: Any) -> Tensor:
    """resize without the underscore (deprecated in PyTorch): a view or copy of the new shape."""
    warnings.warn("non-inplace resize is deprecated", UserWarning, stacklevel=2)
    return self.reshape(*sizes)


public(_resize, name="resize", toplevel=False, out=False)


def _shown(storage: Any, target: Tensor, offset: int, size: Any, stride: Any) -> Any:
    """An array over a storage, which grows if it is too small for it."""
    if not isinstance(size, (tuple, list)) or not isinstance(stride, (tuple, list, type(None))):
        raise TypeError("set_() received an invalid combination of arguments - got (Storage, int, "
                        f"{type(size).__name__}, {type(stride).__name__}), but expected tuples of ints for size and stride")
    shape = shape_of((size,))
    stride = contiguous_strides(shape) if stride is None else tuple(stride)
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    if len(shape) != len(stride):
        raise RuntimeError(f"unequal size length ({len(shape)}) and stride length ({len(stride)})")
    if any(s < 0 for s in stride):
        raise RuntimeError(f"Storage size calculation overflowed with sizes={list(shape)} and strides={list(stride)}")
    last = offset + 1 + sum((n - 1) * s for n, s in zip(shape, stride)) if all(shape) else 0
    if last * target.itemsize > storage.nbytes():
        storage.resize_(last * target.itemsize)
    return storage.array(target._array.dtype, shape, stride, offset)


def _set_(self: Tensor, source: Any = None, storage_offset: int = 0, size: Any = None, stride: Any = None) -> Tensor:
    """Makes the tensor show the memory of another tensor or storage."""
    from ...tensors.storage import TypedStorage, UntypedStorage
    if source is None:
        self._array = registry.maker(self._array).empty((0,), self._array.dtype)
        return self
    if isinstance(source, Tensor):
        if source.dtype is not self.dtype:
            raise RuntimeError(f"Could not set tensor of type {source.dtype.c_word} to a tensor of type {self.dtype.c_word}")
        if size is None:
            array = source._array
        else:
            stride = stride or contiguous_strides(shape_of((size,)))
            array = source.detach().as_strided(size, stride, storage_offset)._array
    elif isinstance(source, (UntypedStorage, TypedStorage)):
        if isinstance(source, TypedStorage) and source.dtype is not self.dtype:
            raise RuntimeError(f"Expected a Storage of type {self.dtype.c_word} or an UntypedStorage, but got type "
                               f"{source.dtype.word} for argument 1 'storage'")
        storage = source.untyped() if isinstance(source, TypedStorage) else source
        if size is None:
            size, stride = (storage.nbytes() // self.itemsize - storage_offset,), (1,)
        array = _shown(storage, self, storage_offset, size, stride)
    else:
        raise TypeError(f"set_(): argument 'source' must be Tensor or Storage, not {type(source).__name__}")
    self._array = pending.flipped(pending.window_of(array), *pending.bits(self._array))  # bits are not the memory's
    if self._node.__class__ is AccumulateGrad:
        self._node = AccumulateGrad(self)  # a graph of the old values no longer leads here
    if isinstance(source, Tensor) and source._counter is not None and self._base is None and self._node is None:
        self._counter = source._counter
    return self


public(_set_, name="set_", toplevel=False, out=False)


@public(toplevel=False, out=False)
def is_set_to(self: Tensor, tensor: Tensor) -> bool:
    """Whether both tensors show exactly the same memory by the same geometry.

    >>> x = torch.ones(2)
    >>> x.is_set_to(x.view(2)), x.is_set_to(x.clone())
    (True, False)
    """
    if not self._array.size:
        return self._array is tensor._array  # empty tensors have no memory to share
    if any(pending.bits(self._array) + pending.bits(tensor._array)):
        return False
    return (self.data_ptr() == tensor.data_ptr() and self._array.shape == tensor._array.shape
            and self.stride() == tensor.stride() and self.storage_offset() == tensor.storage_offset())


@public(toplevel=False, out=False)
def untyped_storage(self: Tensor) -> Any:
    """The bytes behind the tensor.

    >>> torch.zeros(3).untyped_storage().nbytes()
    12
    """
    from ...tensors.storage import UntypedStorage
    return UntypedStorage._of(self)


@public(toplevel=False, out=False)
def storage(self: Tensor) -> Any:
    """The memory behind the tensor as elements of its dtype (deprecated in PyTorch).

    >>> torch.tensor([1, 2]).storage().tolist()
    [1, 2]
    """
    from ...tensors.storage import _warn_typed_storage_removal
    _warn_typed_storage_removal(stacklevel=3)
    return _typed_storage(self)


def _typed_storage(self: Tensor) -> Any:
    from ...tensors.storage import TypedStorage
    return TypedStorage._of(self)


Tensor._typed_storage = _typed_storage


@public(toplevel=False, out=False)
def storage_type(self: Tensor) -> Any:
    """The class of the tensor's storage, by its old name.

    >>> torch.ones(2).storage_type().__name__
    'FloatStorage'
    """
    from ...tensors import storage
    return getattr(storage, storage._legacy(self.dtype))


@public(toplevel=False, out=False, name="share_memory_")
def share_memory_(self: Tensor) -> Tensor:
    """Moves the tensor into memory that other processes can share: forked ones, and those it is sent to.

    >>> torch.ones(2).share_memory_().is_shared()
    True
    """
    from ... import multiprocessing  # noqa: F401  (teaches Python's multiprocessing to send tensors without a copy)
    backend = registry.backend_of(self._array)
    if not backend.is_shared(self._array):
        self.data = wrap(backend.to_shared(self._array))
    return self


@public(toplevel=False, out=False)
def is_shared(self: Tensor) -> bool:
    """Whether the memory is shared with other processes.

    >>> torch.ones(2).is_shared(), torch.ones(2).share_memory_().is_shared()
    (False, True)
    """
    return registry.backend_of(self._array).is_shared(self._array)
