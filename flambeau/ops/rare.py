"""Seldom used methods of Tensor and functions on it, among them PyTorch's internal names that programs reach for."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..autograd.node import AccumulateGrad
from ..backends.cpu.arrays import is_dense
from ..creation.factories import tensor
from ..tensors.dtypes import dtype, int32, int64
from ..tensors.formats import memory_format
from ..tensors.shapes import wrap_dim
from ..tensors.tensor import Tensor
from .core import overrides
from .core.row import FUNCTIONS, check_writable, public
from .pointwise.activations import gelu_
from .reduce.vector_norms import norm_except_dim
from .shape.joining import stack

_REMOVED = {"eig": "torch.linalg.eig", "symeig": "torch.linalg.eigh", "lstsq": "torch.linalg.lstsq",
            "solve": "torch.linalg.solve", "matrix_rank": "torch.linalg.matrix_rank"}


def _removed(name: str, now: str) -> Any:
    def function(*args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"torch.{name}: This function was deprecated since version 1.9 and is now removed. Please use "
                           f"`{now}` instead.")

    function.__name__, function.__doc__ = name, f"Removed from PyTorch: use {now}."
    return function


for _name, _now in _REMOVED.items():
    FUNCTIONS[_name] = _removed(_name, _now)
    if _name != "matrix_rank":
        setattr(Tensor, _name, FUNCTIONS[_name])


@public(toplevel=False, out=False)
def dim_order(self: Tensor, *, ambiguity_check: Any = False) -> tuple[int, ...]:
    """The dimensions from the slowest to the fastest in memory.

    ambiguity_check: raise where other orders would say the same; or memory formats, exactly one of which must fit then.

    >>> torch.ones(2, 3, 4).transpose(0, 1).dim_order()
    (1, 0, 2)
    """
    stride = self.stride()
    formats = ambiguity_check if isinstance(ambiguity_check, list) else []
    if not isinstance(ambiguity_check, (bool, list)) or not all(isinstance(f, memory_format) for f in formats):
        raise TypeError("The ambiguity_check argument must be a bool or a list of memory formats.")
    if ambiguity_check and 1 in self.shape and sum(self.is_contiguous(memory_format=f) for f in formats) != 1:
        raise RuntimeError("The tensor does not have unique dim order, or cannot map to exact one of the given memory formats.")
    if ambiguity_check and (0 in stride or len({*stride}) < self.ndim) and 1 not in self.shape and self.numel():
        raise RuntimeError("The tensor does not have unique dim order.")
    moving = sorted([d for d in range(self.ndim) if stride[d]], key=lambda d: -stride[d])
    return tuple([moving.pop(0) if stride[d] else d for d in range(self.ndim)])  # what has no stride stays where it is


@public(toplevel=False, out=False)
def const_data_ptr(self: Tensor) -> int:
    """data_ptr: where the elements are.

    >>> x = torch.ones(2)
    >>> x.const_data_ptr() == x.data_ptr()
    True
    """
    return self.data_ptr()


@public(out=False)
def is_distributed(input: Tensor) -> bool:
    """False: no tensor is spread over processes here.

    >>> torch.is_distributed(torch.ones(2))
    False
    """
    return False


@public(method=False, out=False)
def get_device(input: Tensor) -> int:
    """The number of the tensor's device; -1 for the CPU.

    >>> torch.get_device(torch.ones(2))
    -1
    """
    return input.get_device()


@public(toplevel=False, out=False)
def resize_as(self: Tensor, the_template: Tensor) -> Tensor:
    """The elements in another tensor's shape (deprecated in PyTorch).

    >>> torch.ones(4).resize_as(torch.zeros(2, 2)).shape
    torch.Size([2, 2])
    """
    warnings.warn("non-inplace resize_as is deprecated", UserWarning, stacklevel=3)
    return self.reshape(the_template.shape)


@public(toplevel=False, out=False, name="fill_diagonal_")
def fill_diagonal_(self: Tensor, fill_value: Any, wrap: bool = False) -> Tensor:
    """Writes a value onto the main diagonal; wrap goes on below the square part of a tall matrix."""
    if self.ndim < 2:
        raise RuntimeError("dimensions must larger than 1")
    if self.ndim > 2 and len(set(self.shape)) > 1:
        raise RuntimeError("all dimensions of input must be of equal length")
    check_writable(self)
    stride = sum(self.stride())
    height, width = self.shape[0], self.shape[1]
    count = min(self.shape)
    diagonal = self.as_strided((count,), (stride,))
    diagonal.fill_(fill_value)
    if wrap and self.ndim == 2 and height > width + 1:
        step = width + 1
        rows = range(step, height)
        for start in rows[::step]:
            size = min(width, height - start)
            self[start:start + size].diagonal().fill_(fill_value)
    return self


def _of_one(name: str, text: str, function: Callable[[Tensor], Tensor], **options: Any) -> None:
    """A function of one tensor that PyTorch has a name of its own for."""
    def call(input: Tensor) -> Tensor:
        return function(input)

    call.__name__, call.__doc__ = name, text
    public(call, **options)


_of_one("_is_all_true", "all() of a bool tensor.", lambda x: x.all(), out=False)
_of_one("_is_any_true", "any() of a bool tensor.", lambda x: x.any(), out=False)
_of_one("_conj", "conj().", lambda x: x.conj(), out=False)
_of_one("_conj_physical", "conj_physical().", lambda x: x.conj_physical(), out=False)
_of_one("_conj_copy", "conj() into new memory.", lambda x: x.conj().clone(), method=False)
_of_one("_neg_view_copy", "_neg_view() into new memory.", lambda x: x._neg_view().clone(), method=False)
_of_one("view_as_real_copy", "view_as_real into new memory.", lambda x: FUNCTIONS["view_as_real"](x).clone(), method=False)
_of_one("view_as_complex_copy", "view_as_complex into new memory.", lambda x: FUNCTIONS["view_as_complex"](x).clone(),
        method=False)


@public(out=False)
def _is_zerotensor(input: Tensor) -> bool:
    """False: tensors of nothing but implied zeros do not exist here."""
    return False


@public(method=False, out=False)
def _shape_as_tensor(input: Tensor) -> Tensor:
    """The shape as an int64 tensor."""
    return tensor(list(input.shape), dtype=int64)


@public(method=False, out=False)
def _debug_has_internal_overlap(input: Tensor) -> int:
    """0: no element has two places, 1: some have, 2: hard to say."""
    if not input.numel() or input.is_contiguous():
        return 0
    stride = [s for s, n in zip(input.stride(), input.shape) if n > 1]
    if 0 in stride:
        return 1
    return 0 if is_dense(input._array) else 2


@public(method=False)
def _safe_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax that is 0 where a whole row is -inf."""
    from .layers.attention import _safe_softmax
    return _safe_softmax(input if dtype is None else input.to(dtype), wrap_dim(dim, input.ndim), None)


@public(method=False, out=False)
def _unique(input: Tensor, sorted: bool = True, return_inverse: bool = False) -> tuple[Tensor, ...]:
    """unique with both results."""
    values, inverse = input.unique(sorted=sorted, return_inverse=True)
    return values, inverse


@public(method=False, out=False)
def _unique2(input: Tensor, sorted: bool = True, return_inverse: bool = False,
             return_counts: bool = False) -> tuple[Tensor, ...]:
    """unique with all three results."""
    return input.unique(sorted=sorted, return_inverse=True, return_counts=True)


@public(method=False)
def _stack(tensors: Any, dim: int = 0) -> Tensor:
    """stack."""
    return stack(tensors, dim)


@public(method=False)
def _euclidean_dist(x1: Tensor, x2: Tensor) -> Tensor:
    """The distances between rows."""
    return FUNCTIONS["cdist"](x1, x2)


@public(method=False)
def _addmm_activation(input: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1,
                      use_gelu: bool = False) -> Tensor:
    """addmm followed by relu or gelu."""
    made = input.addmm(mat1, mat2, beta=beta, alpha=alpha)
    if use_gelu:
        return gelu_(made, "tanh")
    return made.relu()


@public(method=False)
def _int_mm(input: Tensor, mat2: Tensor) -> Tensor:
    """The product of two int8 matrices in int32."""
    return input.to(int32).mm(mat2.to(int32))


@public(method=False, out=False)
def _make_dual(primal: Tensor, tangent: Tensor, level: int) -> Tensor:
    """autograd.forward_ad.make_dual."""
    from ..autograd.forward_ad import make_dual
    return make_dual(primal, tangent, level=level)


@public(method=False, out=False)
def _unpack_dual(dual: Tensor, level: int) -> Any:
    """autograd.forward_ad.unpack_dual."""
    from ..autograd.forward_ad import unpack_dual
    return unpack_dual(dual, level=level)


def _cast(name: str, method: str) -> None:
    def function(input: Tensor, non_blocking: bool = False) -> Tensor:
        return getattr(input, method)()

    function.__name__ = function.__qualname__ = name
    public(function, method=False, out=False, name=name)


for _name, _method in (("Byte", "byte"), ("Char", "char"), ("Double", "double"), ("Float", "float"), ("Half", "half"),
                       ("Int", "int"), ("Long", "long"), ("Short", "short")):
    _cast(f"_cast_{_name}", _method)


def _index_put_impl_(self: Tensor, indices: Any, values: Tensor, accumulate: bool = False, unsafe: bool = False) -> Tensor:
    """index_put_."""
    return self.index_put_(indices, values, accumulate)


FUNCTIONS["_index_put_impl_"] = _index_put_impl_


def _rename(function: Any, old: str, new: str) -> None:
    """Calls an argument by PyTorch's name; the functions of one kind are made by one piece of code."""
    code = function.__code__
    function.__code__ = code.replace(co_varnames=tuple([new if n == old else n for n in code.co_varnames]))


_rename(FUNCTIONS["heaviside"], "other", "values")


def _grad_dtype(self: Tensor) -> Any:
    """The dtype that this leaf's gradient has: the tensor's own unless it was set; None lets any dtype stand.

    >>> x = torch.ones(2, requires_grad=True)
    >>> x.grad_dtype
    torch.float32
    """
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be accessed on leaf tensors.")
    return self._grad_dtype if self._has_grad_dtype else self.dtype


def _set_grad_dtype(self: Tensor, value: Any) -> None:
    if not self.is_leaf:
        raise RuntimeError("grad_dtype can only be set on leaf tensors.")
    if value is not None and not isinstance(value, dtype):
        raise RuntimeError(f"grad_dtype must be a torch.dtype or None, but got {type(value).__name__}")
    if value is not None and self._grad is not None and self._grad.dtype is not value:
        raise RuntimeError(f"Cannot set grad_dtype to '{value.word}' because there is already a gradient with dtype "
                           f"'{self._grad.dtype.c_word}'. Please clear the gradient (.grad = None) before changing "
                           "grad_dtype, or ensure the new grad_dtype matches the existing gradient's dtype.")
    self._has_grad_dtype, self._grad_dtype = True, value


def _volatile(self: Tensor) -> bool:
    """False (removed from PyTorch).

    >>> torch.ones(2).volatile
    False
    """
    warnings.warn("volatile was removed (Variable.volatile is always False)", UserWarning, stacklevel=2)
    return False


Tensor.grad_dtype = property(_grad_dtype, _set_grad_dtype)
Tensor.volatile = property(_volatile)
Tensor._cdata = property(id, doc="A number that no other tensor has while this one lives.")
Tensor._has_symbolic_sizes_strides = False
Tensor._dimI = Tensor._dimV = lambda self: 0


def module_load(self: Tensor, other: Tensor, assign: bool = False) -> Tensor:
    """What takes this tensor's place when load_state_dict swaps tensors; subclasses may say otherwise.

    >>> torch.zeros(2).module_load(torch.ones(2))
    tensor([1., 1.])
    """
    if overrides.active and overrides.has_torch_function((self, other)):
        return overrides.handle_torch_function(Tensor.module_load, (self, other), self, other, assign=assign)
    return other.detach() if assign else self.copy_(other).detach()


def _weight_norm(v: Tensor, g: Tensor, dim: int = 0) -> Tensor:
    """g * v / |v|, the norm taken over all dimensions but one."""
    return v * (g / norm_except_dim(v, 2, dim))


Tensor.module_load = module_load
module_load.__qualname__ = "Tensor.module_load"
FUNCTIONS["_weight_norm"] = _weight_norm


def _poisoned(grads: Any) -> None:
    raise RuntimeError("Trying to execute AccumulateGrad node that was poisoned by swap_tensors: its tensor was swapped after "
                       "the graph was recorded. With torch.__future__.set_swap_module_params_on_conversion(True), change a "
                       "module's device or dtype before running forward, or after both forward and backward.")


def swap_tensors(t1: Any, t2: Any) -> None:
    """Exchanges everything of two tensors: data, place in the graph, attributes and class."""
    for t in (t1, t2):
        if t._node is not None and t._node.__class__ is not AccumulateGrad:
            raise RuntimeError("swap_tensors: a tensor that an operation made cannot be swapped; detach() it first")
    wants = t1.requires_grad, t2.requires_grad
    for name in ("_array", "_counter", "__dict__", "__class__"):
        first, second = getattr(t1, name), getattr(t2, name)
        setattr(t1, name, second)
        setattr(t2, name, first)
    for t, wanted in zip((t1, t2), reversed(wants)):
        if t._node is not None:
            t._node.register_prehook(_poisoned)  # of use only to graphs that were recorded before
        t._node = None  # the accumulator belongs to the object, not to its contents
        if wanted:
            t.requires_grad_(True)
