"""no_grad, enable_grad, set_grad_enabled, inference_mode: context managers and decorators, one thread at a time."""

from __future__ import annotations

import functools
from typing import Any

from .state import INFERENCE, NO_GRAD, grad_enabled, state

_GENERATOR = 0x20  # the code flag of generator functions (inspect takes long to import)


class _Mode:
    """A `with` block that also decorates functions, generators and classes' functions."""

    def __call__(self, function: Any) -> Any:
        if isinstance(function, type):
            import warnings
            warnings.warn("Decorating classes is deprecated and will be disabled in future versions. You should only "
                          "decorate functions or methods.", FutureWarning, stacklevel=2)
            function.__init__ = self(function.__init__)
            return function
        if getattr(getattr(function, "__code__", None), "co_flags", 0) & _GENERATOR:
            return _wrap_generator(self.clone, function)

        @functools.wraps(function)
        def decorated(*args, **kwargs):
            with self.clone():
                return function(*args, **kwargs)

        return decorated

    def clone(self):
        return type(self)()

    def __enter__(self) -> None:
        self.before = state.mode
        self.enter()

    def enter(self) -> None:
        raise NotImplementedError

    def __exit__(self, *exc: Any) -> None:
        state.mode = (state.mode & ~self.bits) | (self.before & self.bits)

    bits = NO_GRAD


class no_grad(_Mode):
    """Nothing is recorded inside; new tensors can join a graph later.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.no_grad():
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __new__(cls, function: Any = None):
        made = object.__new__(cls)
        return made if function is None else made(function)

    def __init__(self, function: Any = None):
        pass

    def enter(self) -> None:
        state.mode |= NO_GRAD


class enable_grad(no_grad):
    """Recording is on inside, also within no_grad.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.no_grad(), torch.enable_grad():
    ...     y = x * 2
    >>> y.requires_grad
    True
    """

    def enter(self) -> None:
        state.mode &= ~NO_GRAD


class set_grad_enabled(_Mode):
    """Turns recording on or off: at once as a function, until the end of the block in a `with`.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.set_grad_enabled(False):
    ...     y = x * 2
    >>> y.requires_grad
    False
    """

    def __init__(self, mode: bool):
        self.wanted = bool(mode)
        self.outer = state.mode
        self.enter()

    def __call__(self, function: Any) -> Any:
        self._undo()
        return super().__call__(function)

    def _undo(self) -> None:
        state.mode = (state.mode & ~NO_GRAD) | (self.outer & NO_GRAD)

    def __enter__(self) -> None:
        self.before = self.outer
        self.enter()

    def enter(self) -> None:
        state.mode = state.mode & ~NO_GRAD if self.wanted else state.mode | NO_GRAD

    def clone(self):
        before = state.mode
        made = type(self)(self.wanted)
        state.mode = before
        made.outer = before
        return made


class inference_mode(_Mode):
    """Like no_grad, and without version counters and view tracking: its tensors can never take part in autograd.

    >>> with torch.inference_mode():
    ...     y = torch.ones(2) * 2
    >>> y.is_inference()
    True
    """

    bits = INFERENCE | NO_GRAD

    def __new__(cls, mode: Any = True):
        made = object.__new__(cls)
        if isinstance(mode, bool):
            return made
        made.wanted = True
        return made(mode)

    def __init__(self, mode: bool = True):
        self.wanted = mode

    def enter(self) -> None:
        if self.wanted:
            state.mode |= INFERENCE | NO_GRAD
        else:
            state.mode &= ~INFERENCE
            if self.before & INFERENCE:
                state.mode &= ~NO_GRAD

    def clone(self):
        return type(self)(self.wanted)


def _wrap_generator(context, function):
    """A decorated generator runs in the mode, and hands the caller's mode back at every yield."""

    @functools.wraps(function)
    def decorated(*args, **kwargs):
        generator = function(*args, **kwargs)
        try:
            with context():
                response = generator.send(None)
            while True:
                try:
                    request = yield response
                except GeneratorExit:
                    with context():
                        generator.close()
                    raise
                except BaseException as error:
                    with context():
                        response = generator.throw(error)
                else:
                    with context():
                        response = generator.send(request)
        except StopIteration as stop:
            return stop.value

    return decorated


def is_grad_enabled() -> bool:
    return grad_enabled()


def is_inference_mode_enabled() -> bool:
    return bool(state.mode & INFERENCE)
