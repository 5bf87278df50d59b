"""`Variable`, from the days when tensors and variables were two things; and the engine's threading switch."""

from __future__ import annotations

import functools
from typing import Any

from ..tensors.tensor import Tensor
from .engine import current_task


class _VariableType(type):
    def __instancecheck__(cls, instance: Any) -> bool:
        return isinstance(instance, Tensor)

    def __subclasscheck__(cls, kind: type) -> bool:
        return issubclass(kind, Tensor)


class Variable(metaclass=_VariableType):
    """Every Tensor is a Variable; Variable(tensor) is a tensor over the same memory.

    >>> torch.autograd.Variable(torch.ones(2), requires_grad=True)
    tensor([1., 1.], requires_grad=True)
    """

    def __new__(cls, data: Any = None, requires_grad: bool = False, volatile: Any = None):
        if data is None:
            from ..creation.factories import empty
            data = empty(0)
        if not isinstance(data, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(data).__name__}")
        return data.detach().requires_grad_(requires_grad)


class _ExecutionEngine:
    """What PyTorch programs ask of the engine by hand."""

    @staticmethod
    def queue_callback(callback: Any) -> None:
        """Calls callback() when the current backward pass has finished."""
        task = current_task()
        if task is None:
            raise RuntimeError("Final callbacks can only be installed during backward pass.")
        task.callbacks.append(callback)


Variable._execution_engine = _ExecutionEngine  # type: ignore[assignment]

_multithreading = True


def is_multithreading_enabled() -> bool:
    """Whether a backward pass may use further threads; set_multithreading_enabled sets it.

    >>> torch.autograd.is_multithreading_enabled()
    True
    """
    return _multithreading


class set_multithreading_enabled:
    """Kept for PyTorch programs: a backward pass runs on the thread that asked for it either way.

    >>> with torch.autograd.set_multithreading_enabled(False):
    ...     torch.autograd.is_multithreading_enabled()
    False
    """

    def __init__(self, mode: bool):
        global _multithreading
        self.before, self.mode = _multithreading, mode
        _multithreading = mode

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        global _multithreading
        _multithreading = self.before

    def __call__(self, function: Any) -> Any:
        self.__exit__()

        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with set_multithreading_enabled(self.mode):
                return function(*args, **kwargs)

        return inside


__all__ = ["Variable"]
