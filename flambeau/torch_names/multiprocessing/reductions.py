"""How tensors and storages are written for another process: as a descriptor of shared memory and a geometry."""

from __future__ import annotations

from multiprocessing.reduction import DupFd, ForkingPickler
from typing import Any

from ..autograd.state import looked_at
from ..backends import registry
from ..backends.cpu.data import shared as _shared
from ..tensors.parameter import Parameter, _attributes
from ..tensors.storage import TypedStorage, UntypedStorage
from ..tensors.tensor import Tensor, wrap, wrap_as

__all__ = ["init_reductions", "reduce_storage", "reduce_tensor"]


class StorageWeakRef:
    """Tells whether a storage's memory is still there, without keeping it; equal for the same memory."""

    __slots__ = ("_memory", "cdata")

    def __init__(self, storage: Any):
        self.cdata = storage._cdata
        self._memory = storage._weak_ref()

    def expired(self) -> bool:
        return self._memory() is None

    def __hash__(self) -> int:
        return self.cdata

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StorageWeakRef) and self.cdata == other.cdata


def reduce_tensor(tensor: Tensor) -> tuple[Any, tuple[Any, ...]]:
    """Moves the tensor into shared memory, and says how to find it there."""
    if not tensor.is_leaf:
        raise RuntimeError("Cowardly refusing to serialize non-leaf tensor which requires_grad, since autograd does "
                           "not support crossing process boundaries. If you just want to transfer the data, call "
                           "detach() on the tensor before serializing (e.g., putting it on the queue).")
    looked_at(tensor._array, "a tensor was sent to another process", writing=True)
    array = tensor._array
    if type(array) is not registry.CPU_ARRAY or not array.size:
        return tensor.__reduce_ex__(5)
    if _shared.segment_of(array) is None:
        tensor._array = array = _shared.to_shared(array)
    nbytes, stride, offset = _shared.place_in_segment(array)
    geometry = nbytes, tuple(array.shape), stride, offset, tensor.dtype
    return rebuild_tensor, (type(tensor), DupFd(_shared.segment_of(array).fd), geometry, tensor.requires_grad,
                            _attributes(tensor))


def rebuild_tensor(cls: type, handle: Any, geometry: tuple[Any, ...], requires_grad: bool,
                   attributes: dict[str, Any]) -> Tensor:
    nbytes, shape, stride, offset, dtype = geometry
    raw = _shared.received(handle.detach(), nbytes)
    made = wrap_as(cls, registry.cpu.over_bytes(raw, shape, stride, offset, dtype.native))
    if requires_grad:
        made.requires_grad_(True)
    made.__dict__.update(attributes)
    return made


def reduce_storage(storage: UntypedStorage) -> tuple[Any, tuple[Any, ...]]:
    if not storage.nbytes():
        return storage.__reduce__()
    if _shared.segment_of(storage._bytes) is None:
        storage.share_memory_()
    return rebuild_storage, (type(storage), DupFd(_shared.segment_of(storage._bytes).fd), storage.nbytes())


def rebuild_storage(cls: type, handle: Any, nbytes: int) -> UntypedStorage:
    return cls._of(wrap(_shared.received(handle.detach(), nbytes)))


def reduce_typed_storage(storage: TypedStorage) -> tuple[Any, tuple[Any, ...]]:
    return rebuild_typed_storage, (storage.untyped(), storage.dtype)


def rebuild_typed_storage(untyped: UntypedStorage, dtype: Any) -> TypedStorage:
    return TypedStorage(wrap_storage=untyped, dtype=dtype)


def init_reductions() -> None:
    """Tells multiprocessing's pickler of all the types."""
    for kind in (Tensor, Parameter):
        ForkingPickler.register(kind, reduce_tensor)
    ForkingPickler.register(UntypedStorage, reduce_storage)
    ForkingPickler.register(TypedStorage, reduce_typed_storage)
