"""`torch.autograd.grad_mode`: the modes under PyTorch's module name."""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor
from .modes import enable_grad, inference_mode, no_grad, set_grad_enabled
from .node import start_counter
from .variable import set_multithreading_enabled


class _unsafe_preserve_version_counter:
    """A `with` block whose in-place changes of the given tensors are not counted."""

    def __init__(self, tensors: Any):
        self.tensors = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        self.versions = [t._version for t in self.tensors]

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        _unsafe_set_version_counter(self.tensors, self.versions)


def _unsafe_set_version_counter(tensors: Any, versions: Any) -> None:
    """Makes the version counters of the tensors say what is wanted."""
    for t, version in zip(tensors, versions):
        if version < 0:
            raise RuntimeError(f"Cannot set a version_counter to a value below 0: {version}")
        if t._counter is not None or version:
            (t._counter or start_counter(t)).value = version


class _force_original_view_tracking:
    """Whether views of a changed base repeat the view functions. The gradients are the same either way: here such a view is
    always recorded as an `as_strided` of its base."""

    _replayed = False

    def __init__(self, mode: bool):
        self.before, self.mode = is_view_replay_enabled(), mode
        _force_original_view_tracking._replayed = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        _force_original_view_tracking._replayed = self.before


def is_view_replay_enabled() -> bool:
    return _force_original_view_tracking._replayed


__all__ = ["no_grad", "enable_grad", "set_grad_enabled", "inference_mode", "set_multithreading_enabled"]
