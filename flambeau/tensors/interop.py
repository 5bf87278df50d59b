"""Sharing memory with NumPy and, through DLPack, with everybody else.

The one module above `backends` that may hold NumPy arrays: it hands them over and takes them in.
"""

from __future__ import annotations

import enum
import warnings
from typing import Any

from ..autograd import state as _state
from ..autograd.cuts import DATA, note
from ..autograd.state import grad_enabled, looked_at, not_repeatable
from ..backends import registry
from ..backends.batched.arrays import BatchedArray
from ..backends.cpu import arrays as _arrays
from ..backends.cpu import creation as _cpu
from ..backends.cpu import memory as _memory
from ..creation.literals import from_native
from ..ops.core.row import _type_word, public
from . import dtypes as _dtypes
from .device import to_device
from .formats import strided
from .tensor import Tensor, wrap

__all__ = ["from_numpy", "frombuffer", "from_dlpack", "to_dlpack"]

_READ_ONLY = ("The given NumPy array is not writable, and PyTorch does not support non-writable tensors. This means "
              "writing to this tensor will result in undefined behavior. You may want to copy the array to protect its "
              "data or make it writable before converting it to a tensor.")


# ---------------------------------------------------------------------------------------------------------- NumPy
def from_numpy(ndarray: Any, *, _warn: bool = True) -> Tensor:
    """A tensor over a NumPy array's memory: a write on either side is seen on the other."""
    if not _cpu.is_array(ndarray):
        raise TypeError(f"expected np.ndarray (got {type(ndarray).__name__})")
    from_native(ndarray.dtype)
    array = _cpu.foreign(ndarray)
    if not array.flags.writeable:
        warnings.warn(_READ_ONLY, UserWarning, stacklevel=2)
        made = wrap(_arrays.share(array))
    elif array.base is None and array.flags.c_contiguous:
        _memory.given(array)
        made = wrap(array.view())  # a view: changing the caller's array object does not change the tensor's shape
    else:
        made = wrap(_arrays.share(array))
    watched = _state.anomaly_was_on and _state.state.mode & _state.ANOMALY
    return note(made, "numpy", "a tensor made of a NumPy array", DATA) if watched else made


@public(toplevel=False, out=False)
def numpy(self, *, force=False) -> Any:
    """The tensor's memory as a NumPy array; force=True detaches and copies to the CPU where that is needed."""
    if force:
        self = self.detach().cpu().resolve_conj().resolve_neg()
    elif self.device.type != "cpu":
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy the tensor "
                        "to host memory first.")
    if self.requires_grad and grad_enabled():
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    array = self._array
    if type(array) is BatchedArray:
        array.item()
    if self.is_conj():
        raise RuntimeError("Can't call numpy() on Tensor that has conjugate bit set. Use tensor.resolve_conj().numpy() "
                           "instead.")
    if self.is_neg():
        raise RuntimeError("Can't call numpy() on Tensor that has negative bit set. Use tensor.resolve_neg().numpy() instead.")
    if not _cpu.has_numpy_type(array):
        raise TypeError(f"Got unsupported ScalarType {_type_word(self.dtype)}")
    not_repeatable("a tensor was given to NumPy")
    looked_at(array, "a tensor was given to NumPy", writing=True)
    return _memory.exposed(self._array)


def _array(self, dtype: Any = None, copy: Any = None) -> Any:
    """NumPy's protocol: np.asarray(tensor) shares memory, with a dtype it converts."""
    array = numpy(self)
    if dtype is not None and array.dtype != dtype:
        if copy is False:
            raise ValueError(f"a copy is needed to convert {array.dtype} to {dtype}, but copy=False was passed")
        return array.astype(dtype)
    return array.copy() if copy else array


def _array_wrap(self, array: Any, context: Any = None, return_scalar: bool = False) -> Tensor:
    """What a NumPy function of a tensor returns: a tensor again (PyTorch gives uint8 for bool here, and so do we)."""
    if array.dtype.kind == "b":
        array = array.astype("uint8")
    return from_numpy(array)


Tensor.__array__ = _array
Tensor.__array_wrap__ = _array_wrap


def frombuffer(buffer: Any, *, dtype: Any, count: int = -1, offset: int = 0, requires_grad: bool = False) -> Tensor:
    """A one-dimensional tensor over the memory of an object with Python's buffer protocol."""
    if not isinstance(dtype, _dtypes.dtype):
        raise TypeError(f"frombuffer(): argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    try:
        view = memoryview(buffer)
    except TypeError:
        raise ValueError("object does not implement Python buffer protocol.") from None
    length, size = view.nbytes, dtype.itemsize
    if length == 0 or count == 0:
        raise ValueError(f"both buffer length ({length}) and count ({count}) must not be 0")
    if not 0 <= offset < length:
        raise ValueError(f"offset ({offset} bytes) must be non-negative and no greater than buffer length ({length} "
                         "bytes) minus 1")
    if count < 0:
        if (length - offset) % size:
            raise ValueError(f"buffer length ({length - offset} bytes) after offset ({offset} bytes) must be a "
                             f"multiple of element size ({size})")
        count = (length - offset) // size
    if offset + count * size > length:
        raise ValueError(f"requested buffer length ({count} * {size} bytes) after offset ({offset} bytes) must not be "
                         f"greater than actual buffer length ({length} bytes)")
    if view.readonly:
        warnings.warn("The given buffer is not writable, and PyTorch does not support non-writable tensors. This means "
                      "you can write to the underlying (supposedly non-writable) buffer using the tensor.", UserWarning,
                      stacklevel=2)
    import numpy
    made = wrap(_arrays.share(numpy.frombuffer(view, dtype.native, count, offset)))
    return made.requires_grad_(True) if requires_grad else made


# --------------------------------------------------------------------------------------------------------- DLPack
def _dlpack(self, *, stream: Any = None, max_version: Any = None, dl_device: Any = None, copy: Any = None) -> Any:
    """A capsule over the tensor's memory, for another library's from_dlpack."""
    from ..backends.cpu.data import dlpack
    if self.requires_grad:
        raise BufferError("Can't export tensors that require gradient, use tensor.detach()")
    if self.layout is not strided:
        raise BufferError("Can't export tensors with layout other than torch.strided")
    if self.is_conj():
        raise BufferError("Can't export tensors with the conjugate bit set: use tensor.resolve_conj()")
    if self.is_neg():  # PyTorch exports the memory as it is, so that the other side sees the wrong sign
        raise BufferError("Can't export tensors with the negative bit set: use tensor.resolve_neg()")
    if self.is_cuda:
        from ..backends.cuda import dlpack as on_device
        if dl_device is not None and tuple(dl_device) != self.__dlpack_device__():
            raise BufferError(f"Cannot export a tensor of {self.device} to DLPack device {tuple(dl_device)}")
        return on_device.export((self.clone() if copy else self)._array, stream)
    if self.device.type != "cpu":
        raise BufferError(f"Cannot pack tensors on {self.device.type}")
    if stream is not None and not isinstance(stream, int):
        raise TypeError("stream must be ``int`` or ``none``")
    if stream is not None and stream != -1:
        raise AssertionError("stream should be None on cpu.")
    options = {} if copy is None else {"copy": copy}
    looked_at(self._array, "a tensor was exported", writing=True)
    return dlpack.export(_memory.exposed(self._array), max_version=max_version, dl_device=dl_device, **options)


class DLDeviceType(enum.IntEnum):
    """DLPack's numbers of kinds of devices."""

    kDLCPU, kDLCUDA, kDLCUDAHost = 1, 2, 3
    kDLOpenCL, kDLVulkan, kDLMetal, kDLVPI, kDLROCM, kDLROCMHost, kDLExtDev = 4, 7, 8, 9, 10, 11, 12
    kDLCUDAManaged, kDLOneAPI, kDLWebGPU, kDLHexagon, kDLMAIA = 13, 14, 15, 16, 17


def _dlpack_device(self) -> tuple[DLDeviceType, int]:
    """(device type, index) in DLPack's numbers."""
    if self.is_cuda:
        return (DLDeviceType.kDLCUDA, self.device.index)
    if self.device.type != "cpu":
        raise ValueError(f"Unknown device type {self.device.type} for Dlpack")
    return (DLDeviceType.kDLCPU, 0)


def _cuda_array_interface(self) -> dict[str, Any]:
    """What CuPy and Numba read: address, shape and strides of a CUDA tensor."""
    if not self.is_cuda:
        raise AttributeError(f"Can't get __cuda_array_interface__ on non-CUDA tensor type: {self.type()} If CUDA data is "
                             "required use tensor.cuda() to copy tensor to device memory.")
    if self.requires_grad:
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad. If gradients aren't required, "
                           "use var.detach() to get Variable that doesn't require grad.")
    from ..backends.cuda import dlpack
    return dlpack.interface(self._array)


Tensor.__cuda_array_interface__ = property(_cuda_array_interface)


Tensor.__dlpack__ = _dlpack
Tensor.__dlpack_device__ = _dlpack_device


def _to_device(self, device: Any, /, *, stream: Any = None) -> Tensor:
    """The array API's word for `to`: the tensor itself where it already is on that device.

    >>> torch.ones(2).to_device("cpu").device
    device(type='cpu')
    """
    if stream is not None:
        raise ValueError(f"stream must be None on {self.device.type}, not {stream!r}")
    return self.to(to_device(device))


Tensor.to_device = _to_device


def to_dlpack(tensor: Tensor) -> Any:
    """A capsule over the tensor's memory.

    >>> torch.from_dlpack(torch.to_dlpack(torch.arange(3)))
    tensor([0, 1, 2])
    """
    return tensor.__dlpack__()


def from_dlpack(ext_tensor: Any, *, device: Any = None, copy: bool | None = None) -> Tensor:
    """A tensor over the memory of another library's tensor, or of a capsule of it. copy=True copies, copy=False asks the other
    library not to."""
    from ..backends.cpu.data import dlpack
    if device is not None and to_device(device).type not in ("cpu", "cuda"):
        raise BufferError(f"Cannot pack tensors on {to_device(device).type}")
    if dlpack.is_capsule(ext_tensor):
        capsule = ext_tensor
        if dlpack.device_of(capsule)[0] == 2:
            return _from_device(capsule, device, copy)
    elif hasattr(ext_tensor, "__dlpack__") and ext_tensor.__dlpack_device__()[0] == 2:
        registry.cuda()
        return _from_device(ext_tensor.__dlpack__(stream=1), device, copy)
    elif hasattr(ext_tensor, "__dlpack__"):
        kind, _ = ext_tensor.__dlpack_device__()
        if kind != 1:
            raise RuntimeError("from_dlpack: only CPU memory can be imported, the tensor is on DLPack device "
                               f"{tuple(ext_tensor.__dlpack_device__())}")
        options = {"copy": False} if copy is False else {}
        try:
            capsule = ext_tensor.__dlpack__(max_version=(1, 0), **options)
        except TypeError:  # from before these arguments: what it has, it shares
            capsule = ext_tensor.__dlpack__()
    else:
        raise RuntimeError("from_dlpack received an invalid capsule: expected an object with __dlpack__ or a DLPack "
                           f"capsule, got {type(ext_tensor).__name__}")
    array = dlpack.take(capsule)
    from_native(array.dtype)
    if copy:
        array = _cpu.copy(array)
    return wrap(array) if device is None else wrap(array).to(device)


def _from_device(capsule: Any, device: Any, copy: bool | None) -> Tensor:
    registry.cuda()
    from ..backends.cuda import dlpack
    made = wrap(dlpack.take(capsule))
    made = made.clone() if copy else made
    return made if device is None else made.to(device)


def asarray(obj: Any, dtype: Any, device: Any, copy: Any, requires_grad: Any) -> Tensor:
    """What `flambeau.asarray` does with each kind of object."""
    if hasattr(obj, "__cuda_array_interface__") and not isinstance(obj, Tensor):
        registry.cuda()
        from ..backends.cuda import dlpack
        return _as_tensor(wrap(dlpack.over_interface(obj)), dtype, device, copy, bool(requires_grad))
    if isinstance(obj, Tensor):
        return _as_tensor(obj, dtype, device, copy, obj.requires_grad if requires_grad is None else requires_grad)
    if _cpu.is_array(obj):
        made = from_numpy(obj)
    elif _cpu.is_scalar(obj):
        from_native(obj.dtype)
        made = wrap(registry.cpu.asarray(obj).copy())
    elif hasattr(obj, "__dlpack__") or type(obj).__name__ == "PyCapsule":
        made = from_dlpack(obj)
    elif hasattr(obj, "untyped"):  # a storage
        made = wrap(obj._elements())
    elif isinstance(obj, (bytearray, memoryview)) or has_buffer(obj):
        made = frombuffer(obj, dtype=dtype or _dtypes.get_default_dtype())
    else:
        if copy is False:
            raise ValueError("can't alias arbitrary sequence into a tensor.")
        from ..creation.factories import tensor
        return tensor(obj, dtype=dtype, device=device, requires_grad=bool(requires_grad))
    return _as_tensor(made, dtype, device, copy, bool(requires_grad))


def has_buffer(obj: Any) -> bool:
    """Whether it is an object with Python's buffer protocol, and neither a number, a string nor a sequence."""
    if isinstance(obj, (int, float, complex, str, list, tuple, range)):
        return False
    try:
        memoryview(obj)
    except TypeError:
        return False
    return True


def _as_tensor(t: Tensor, dtype: Any, device: Any, copy: Any, requires_grad: bool) -> Tensor:
    changed = dtype is not None and dtype is not t.dtype
    moved = device is not None and to_device(device).type != t.device.type
    if copy is False and (changed or moved):
        what = f"dtype '{_type_word(t.dtype)}' into dtype '{_type_word(dtype)}'" if changed else (
            f"device '{t.device}' into device '{device}'")
        raise ValueError(f"can't alias tensor with {what}.")
    if changed or moved:
        t = t.to(device=to_device(device) if moved else t.device, dtype=dtype or t.dtype)
    elif copy:
        t = t.clone()
    if t.requires_grad and not requires_grad:
        return t.detach()
    if requires_grad and not t.requires_grad:
        return wrap(t._array).requires_grad_(True) if not changed and not moved and not copy else t.requires_grad_(True)
    return t
