"""`torch.autograd.grad_mode`: the modes under PyTorch's module name."""

from __future__ import annotations

from typing import Any

from .modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from .variable import set_multithreading_enabled


class _unsafe_preserve_version_counter:
    """A `with` block whose in-place changes of the given tensors are not counted."""

    def __init__(self, tensors: Any):
        from ..tensor import Tensor
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self.versions = [t._version for t in self.tensors]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        for t, version in zip(self.tensors, self.versions):
            if t._counter is not None:
                t._counter.value = version



__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "set_multithreading_enabled"]
