"""`torch._C.DispatchKey` and sets of them: the names by which programs speak of PyTorch's kinds of kernels.

flambeau does not choose kernels by keys. The names can be written, put into sets and compared, and the keys of autocast can be
left out for a block, which switches autocast off there.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import Any

_BACKENDS = "CPU CUDA HIP XLA MPS IPU XPU HPU VE Lazy MTIA MAIA PrivateUse1 PrivateUse2 PrivateUse3 Meta".split()
_FAMILIES = ("", "Quantized", "Sparse", "SparseCsr", "NestedTensor", "Autograd")
_OTHERS = """Undefined Dense Quantized Sparse SparseCsr NestedTensor BackendSelect Python Functionalize Conjugate Negative
    ZeroTensor ADInplaceOrView Autograd AutogradOther AutogradFunctionality AutogradNestedTensor AutocastCPU AutocastCUDA
    AutocastXPU AutocastMPS AutocastHPU AutocastIPU AutocastPrivateUse1 FuncTorchBatched FuncTorchBatchedDecomposition
    FuncTorchVmapMode FuncTorchGradWrapper FuncTorchDynamicLayerBackMode FuncTorchDynamicLayerFrontMode PreDispatch
    PythonDispatcher PythonTLSSnapshot CompositeImplicitAutograd CompositeImplicitAutogradNestedTensor
    CompositeExplicitAutograd CompositeExplicitAutogradNonFunctional"""
DispatchKey = enum.Enum("DispatchKey", [*_OTHERS.split(), *(family + b for family in _FAMILIES for b in _BACKENDS)],
                        module="torch._C")


class DispatchKeySet:
    """Some keys; united by |, left out by -, in common by &."""

    def __init__(self, *keys: Any):
        self._keys = frozenset(keys)

    def has(self, key: Any) -> bool:
        return key in self._keys

    def add(self, key: Any) -> DispatchKeySet:
        return DispatchKeySet(*self._keys, key)

    def remove(self, key: Any) -> DispatchKeySet:
        return DispatchKeySet(*self._keys - {key})

    def __or__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys | other._keys)

    def __and__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys & other._keys)

    def __sub__(self, other: DispatchKeySet) -> DispatchKeySet:
        return DispatchKeySet(*self._keys - other._keys)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DispatchKeySet) and self._keys == other._keys

    def __hash__(self) -> int:
        return hash(self._keys)

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(self._keys, key=lambda key: key.value))

    def __repr__(self) -> str:
        return f"DispatchKeySet({', '.join(key.name for key in self)})"


@contextlib.contextmanager
def excluded(keys: DispatchKeySet) -> Iterator[None]:
    """A block without the kernels of these keys: of autocast's, as there are no others to leave out."""
    rest = [key.name for key in keys if not key.name.startswith("Autocast")]
    if rest:
        raise NotImplementedError(f"_ExcludeDispatchKeyGuard: flambeau has no kernels of the keys {', '.join(rest)}")
    from .amp import autocast
    with contextlib.ExitStack() as stack:
        for device in ("cpu", "cuda", "xpu"):
            if keys.has(DispatchKey[f"Autocast{device.upper()}"]):
                stack.enter_context(autocast(device, enabled=False))
        yield
