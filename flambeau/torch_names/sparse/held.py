"""`Held`: what all tensors have in common that keep their numbers in a tensor of values, and their places beside it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..tensors.tensor import Tensor


class Handlers(dict[str, Callable]):
    """What operations, by name, do with tensors of a kind."""

    def __call__(self, *names: str) -> Callable[[Callable], Callable]:
        """Enters the function that follows under these names."""
        def enter(function: Callable) -> Callable:
            self.update(dict.fromkeys(names, function))
            return function

        return enter


def into(out: Tensor, made: Tensor) -> Tensor:
    """A result in the tensor that was given for it."""
    if not isinstance(out, Held):
        return out.resize_(made.shape).copy_(made.to_dense() if isinstance(made, Held) else made)
    if type(made) is not type(out):
        raise RuntimeError(f"Expected out tensor to have layout {made.layout}, but got {out.layout} instead")
    out._written(made)
    return out


class Held(Tensor):
    """A tensor whose values are an ordinary tensor, `_held_values`: gradients are those of the values.

    `_array` has its shape and dtype but no memory of that size. Subclasses know the places, and `_rebuilt(values)` gives a
    tensor with the same places and other values.
    """

    _answers_itself = True

    _without_overrides = False
    _handlers: Handlers
    _refusal: str  # what an operation that is not among them says after its name
    _grad_elsewhere: Tensor | None = None  # a gradient that was set, with other places

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", str(func))
        handler = cls._handlers.get(name)
        if handler is None:
            raise NotImplementedError(f"{name}: not implemented for {cls._refusal}")
        kwargs = dict(kwargs or {})
        out = kwargs.pop("out", None)
        made = handler(*args, **kwargs)
        return made if out is None else into(out, made)

    def _rebuilt(self, values: Tensor) -> Held:
        raise NotImplementedError

    def _written(self, made: Held) -> None:
        """Becomes a result, of its own dtype."""
        if made.dtype is not self.dtype:
            from ..tensors.dtypes import can_cast
            if not can_cast(made.dtype, self.dtype):
                raise RuntimeError(f"result type {made.dtype.word} can't be cast to the desired output type {self.dtype.word}")
            made = made._rebuilt(made._held_values.to(self.dtype))
        self._take(made)

    @property
    def device(self) -> Any:
        return self._held_values.device

    @property
    def requires_grad(self) -> bool:
        return self._held_values.requires_grad

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        self._held_values.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Held:
        self._held_values.requires_grad_(requires_grad)
        return self

    @property
    def is_leaf(self) -> bool:
        return self._held_values.is_leaf

    @property
    def grad_fn(self) -> Any:
        return self._held_values.grad_fn

    @property
    def grad(self) -> Held | None:
        grad = self._held_values.grad
        return self._grad_elsewhere if grad is None else self._rebuilt(grad)

    @grad.setter
    def grad(self, value: Any) -> None:
        same = isinstance(value, Held) and value._held_values.shape == self._held_values.shape
        self._held_values.grad = value._held_values if same else None
        self._grad_elsewhere = None if same else value

    def retain_grad(self) -> None:
        self._held_values.retain_grad()

    def register_hook(self, hook: Any) -> Any:
        def of_values(grad: Tensor) -> Any:
            made = hook(self._rebuilt(grad))
            return made._held_values if isinstance(made, Held) else made

        return self._held_values.register_hook(of_values)

    def backward(self, gradient: Any = None, retain_graph: bool | None = None, create_graph: bool = False,
                 inputs: Any = None) -> None:
        """The backward pass from the values, for a gradient with the same places."""
        given = gradient._held_values if isinstance(gradient, Held) else gradient
        self._held_values.backward(given, retain_graph, create_graph, inputs)

    def detach(self) -> Held:
        return self._rebuilt(self._held_values.detach())

    def detach_(self) -> Held:
        self._held_values = self._held_values.detach()
        return self

    @property
    def data(self) -> Held:
        return self.detach()

    @data.setter
    def data(self, other: Held) -> None:
        self._take(other)

    def _take(self, other: Held) -> None:
        """Becomes what the other one is."""
        raise NotImplementedError

    def _nnz(self) -> int:
        raise NotImplementedError

    def _layout_word(self) -> str:
        return {"sparse_coo": "Sparse", "sparse_csr": "SparseCsr", "sparse_csc": "SparseCsc", "sparse_bsr": "SparseBsr",
                "sparse_bsc": "SparseBsc"}[str(self.layout).rpartition(".")[2]]

    def numpy(self, **kwargs: Any) -> Any:
        raise TypeError(f"can't convert {self._layout_word()} layout tensor to numpy. Use Tensor.to_dense() first.")

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        return self.numpy()

    def __bool__(self) -> bool:
        return self.is_nonzero()

    def __float__(self) -> float:
        return float(self.item())

    def __int__(self) -> int:
        return int(self.item())

    def __complex__(self) -> complex:
        return complex(self.item())

    def data_ptr(self) -> int:
        raise RuntimeError("Cannot access data pointer of Tensor that doesn't have storage")

    def is_pinned(self, device: Any = None) -> bool:
        return False

    def type_as(self, other: Tensor) -> Held:
        return self.to(other.dtype)

    def new_tensor(self, data: Any, **options: Any) -> Tensor:
        return self._held_values.new_tensor(data, **options)

    def type(self, dtype: Any = None, non_blocking: bool = False, **kwargs: Any) -> Any:
        """The name of its old type, or the tensor of another dtype (also by such a name)."""
        if dtype is None:
            return f"torch.sparse.{self.dtype.word}Tensor"
        from ..creation.legacy import LEGACY
        if isinstance(dtype, str) and dtype.startswith("torch.sparse."):
            return self.to(LEGACY[dtype.removeprefix("torch.sparse.").removesuffix("Tensor")])
        return self.to(getattr(dtype, "dtype", dtype))

    @property
    def nbytes(self) -> int:
        raise RuntimeError("nbytes is not defined for sparse tensors.  If you want the size of the constituent tensors, add "
                           "the nbytes of the indices and values.")

    def _printed(self, apart: bool, **parts: Tensor) -> str:
        """Places and values one below the other, then size, count, and what is not as usual (`apart`: on a line of its own)."""
        from ..tensors.dtypes import get_default_dtype
        made = []
        for name, t in parts.items():
            text = f"tensor([], size={tuple(t.shape)})" if not t.numel() else repr(t.detach())
            text = text.replace(f", dtype={t.dtype})", ")") if name == "values" else text
            pad = " " * (8 + len(name))
            made.append(f"{name}={text}".replace("\n", "\n" + pad).replace(pad + "\n", "\n"))
        facts = [f"size={tuple(self.shape)}", f"nnz={self._nnz()}"]
        if self.dtype is not get_default_dtype() and self.dtype.name not in ("int64", "bool", "complex64"):
            facts.append(f"dtype={self.dtype}")
        facts.append(f"layout={self.layout}")
        if self.requires_grad:
            facts.append(f"grad_fn=<{self.grad_fn.name()}>" if self.grad_fn is not None else "requires_grad=True")
        text = "tensor(" + (",\n" + " " * 7).join(made)
        length = len(text) - text.rfind("\n") + 1
        for fact in facts:
            if apart or length + len(fact) + 2 > 80:
                text, length, apart = f"{text},\n{' ' * 7}{fact}", 9 + len(fact), False
            else:
                text, length = f"{text}, {fact}", length + len(fact) + 2
        return text + ")"
