"""Made by tools/stubs.py."""

from .tensor import Tensor


class Parameter(Tensor):
    def __init__(self, data: Tensor | None = ..., requires_grad: bool = ...) -> None: ...


class Buffer(Tensor):
    def __init__(self, data: Tensor | None = ..., *, persistent: bool = ...) -> None: ...
