"""What operations do with tensors of compressed layouts."""

from __future__ import annotations

from typing import Any

from ..ops.core.row import FUNCTIONS, check_dtype
from ..tensors.dtypes import bool_
from ..tensors.tensor import Tensor
from .arithmetic import BY_VALUE, CONVERSIONS, LINEAR, _of
from .compressed import HANDLERS, CompressedTensor, coo_to_compressed, make, to_compressed
from .held import Held

handler = HANDLERS


def _is(x: Any) -> bool:
    return isinstance(x, CompressedTensor)


def _back(made: Any, like: CompressedTensor) -> CompressedTensor:
    """A COO tensor in the layout of another."""
    return coo_to_compressed(made, like._name, like.blocksize if like._name.startswith("b") else None)


def _dense(x: Any) -> Any:
    return x.to_dense() if isinstance(x, Held) else x


# --------------------------------------------------------------------------------------------------- on the values alone
def _by_value(name: str) -> None:
    def applied(a: CompressedTensor, *args: Any, **kwargs: Any) -> CompressedTensor:
        if kwargs.pop("inplace", False):  # nn.functional.relu
            return changed(a, *args, **kwargs)
        return a._rebuilt(_of(a._held_values, name, *args, **kwargs))

    def changed(a: CompressedTensor, *args: Any, **kwargs: Any) -> CompressedTensor:
        a._written(applied(a, *args, **kwargs))
        return a

    HANDLERS[name], HANDLERS[name + "_"] = applied, changed


for _name in (*BY_VALUE, *LINEAR, *CONVERSIONS):
    _by_value(_name)
HANDLERS["__neg__"], HANDLERS["__pow__"], HANDLERS["__abs__"] = HANDLERS["neg"], HANDLERS["pow"], HANDLERS["abs"]
HANDLERS["__pos__"], HANDLERS["pow_scalar"] = HANDLERS["positive"], HANDLERS["pow"]


@handler("fill_")
def _fill_(a: CompressedTensor, value: Any) -> CompressedTensor:
    a._held_values = FUNCTIONS["full_like"](a._held_values, value)
    return a


@handler("zero_")
def _zero_(a: CompressedTensor) -> CompressedTensor:
    a._take(_zeros_like(a))
    return a


@handler("to")
def _to(a: CompressedTensor, *args: Any, **kwargs: Any) -> Any:
    made = a._held_values.to(*args, **kwargs) if args or kwargs else a._held_values
    return a if made is a._held_values else a._rebuilt(made)


@handler("zeros_like", "empty_like")
def _zeros_like(a: CompressedTensor, *, dtype: Any = None, layout: Any = None, device: Any = None, requires_grad: bool = False,
                pin_memory: bool = False, memory_format: Any = None) -> Any:
    from ..tensors.formats import strided
    if layout is strided:
        return FUNCTIONS["zeros"](tuple(a.shape), dtype=dtype or a.dtype, requires_grad=requires_grad)
    values = a._held_values.detach().narrow(a._held_plain.ndim - 1, 0, 0)
    made = make(a._held_layout, FUNCTIONS["zeros_like"](a._held_compressed), a._held_plain[..., :0],
                values if dtype is None else values.to(dtype), a.shape)
    return made.requires_grad_(requires_grad)


@handler("ones_like", "full_like")
def _full_like(a: CompressedTensor, fill_value: Any = 1, *, dtype: Any = None, layout: Any = None, device: Any = None,
               requires_grad: bool = False, pin_memory: bool = False, memory_format: Any = None) -> CompressedTensor:
    """The same places, all with one number."""
    made = a._rebuilt(FUNCTIONS["full_like"](a._held_values.detach(), fill_value, dtype=dtype or a.dtype))
    return made.requires_grad_(requires_grad)


@handler("item")
def _item(a: CompressedTensor) -> Any:
    return a._to_coo().item()


@handler("is_nonzero")
def _is_nonzero(a: CompressedTensor) -> bool:
    return a._to_coo().is_nonzero()


@handler("logical_not")
def _logical_not(a: CompressedTensor) -> Tensor:
    return a.to_dense().logical_not()


@handler("clone")
def _clone(a: CompressedTensor, *, memory_format: Any = None) -> CompressedTensor:
    return a.clone()


@handler("copy_")
def _copy_(a: CompressedTensor, source: Any, non_blocking: bool = False) -> CompressedTensor:
    if not _is(source):
        raise RuntimeError("copy of sparse compressed tensors having different layouts is not supported. self layout is "
                           f"{a._layout_word()} and src layout is {source.layout}")
    if a._layout_word() != source._layout_word() or a._nnz() != source._nnz() or a.shape != source.shape:
        raise RuntimeError("only sparse compressed tensors with the same number of specified elements are supported.")
    a._take(source.to(a.dtype).clone())
    return a


HANDLERS["detach"] = CompressedTensor.detach
HANDLERS["to_dense"] = CompressedTensor.to_dense


# ------------------------------------------------------------------------------------------------------------ arithmetic
@handler("add", "__add__", "__radd__")
def _add(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if _is(a) and _is(b):
        if a.shape != b.shape:
            raise RuntimeError(f"add: Expected input tensors to have the same shape, but got tensor `self` with shape "
                               f"{list(a.shape)} and tensor `other` with shape {list(b.shape)}")
        return _back(a._to_coo() + b._to_coo() * alpha, a)
    if not isinstance(b, Tensor) or not isinstance(a, Tensor):
        raise RuntimeError("add: a sparse tensor and a number: only tensors can be added to sparse ones")
    return _dense(a) + _dense(b) * alpha


@handler("sub", "__sub__")
def _sub(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    return _add(a, b, alpha=-alpha)


@handler("add_", "__iadd__")
def _add_(a: Any, b: Any, *, alpha: Any = 1) -> Any:
    if not _is(a):
        return a.add_(_dense(b), alpha=alpha)
    a._take(_add(a, b, alpha=alpha))
    return a


@handler("mul", "__mul__", "__rmul__", "multiply")
def _mul(a: Any, b: Any) -> Any:
    if not _is(a):
        a, b = b, a
    if _is(b):
        return _back(a._to_coo() * b._to_coo(), a)
    if isinstance(b, Tensor) and b.ndim:
        return a._rebuilt(a._held_values * _picked(b.expand(a.shape), a))
    return a._rebuilt(a._held_values * b)


@handler("div", "__truediv__", "divide", "true_divide")
def _div(a: Any, b: Any, *, rounding_mode: Any = None) -> Any:
    if not _is(a) or (isinstance(b, Tensor) and b.ndim):
        raise RuntimeError("Sparse division requires a scalar or zero-dim dense tensor divisor")
    return a._rebuilt(FUNCTIONS["div"](a._held_values, b, rounding_mode=rounding_mode))


@handler("mul_", "__imul__")
def _mul_(a: Any, b: Any) -> Any:
    a._take(_mul(a, b))
    return a


@handler("div_", "__itruediv__")
def _div_(a: Any, b: Any) -> Any:
    a._take(_div(a, b))
    return a


def _picked(dense: Tensor, sparse: CompressedTensor) -> Tensor:
    """The elements of a dense tensor at the places of a sparse one."""
    which, rows, columns, _ = sparse._elements()
    batch = len(sparse._batch())
    down, across = sparse.shape[batch:batch + 2]
    flat = dense.reshape(-1, *dense.shape[batch + 2:])
    return flat.index_select(0, (which * down + rows) * across + columns).reshape(sparse._held_values.shape)


@handler("sparse_mask")
def _sparse_mask(a: Tensor, mask: Any) -> Any:
    return mask._rebuilt(_picked(_dense(a), mask))


# -------------------------------------------------------------------------------------------------------------- products
def _rows_times(a: CompressedTensor, b: Tensor) -> Tensor:
    """A sparse matrix times a dense one, (or a stack of each): every element takes a row of b to a row of the result."""
    which, rows, columns, values = a._elements()
    down, across = a.shape[-2:]
    terms = b.reshape(-1, b.shape[-1]).index_select(0, which * across + columns) * values.unsqueeze(-1)
    count = max(b.numel() // max(across * b.shape[-1], 1), 1) if b.ndim > 2 else 1
    made = terms.new_zeros((count * down, b.shape[-1])).index_add(0, which * down + rows, terms)
    return made.view(*b.shape[:-2], down, b.shape[-1])


def reduced_product(a: Any, b: Tensor, reduce: str) -> Tensor:
    """A CSR matrix times a dense one, in which the mean or an extreme of the products takes the place of their sum."""
    if not _is(a) or a._name != "csr" or isinstance(b, Held):
        raise NotImplementedError("sparse.mm with reduce: expected a sparse matrix of layout sparse_csr and a dense one")
    check_dtype("spmm_reduce_kernel", a.dtype, "f")
    if reduce == "prod":
        raise RuntimeError(f"sparse_mm_reduce: reduce type of {reduce} has not been enabled.")
    _check_product(a, b)
    _, rows, columns, values = a._elements()
    terms = b.index_select(0, columns) * values.unsqueeze(-1)
    made = terms.new_zeros(a.shape[0], b.shape[1])
    return made.scatter_reduce(0, rows.unsqueeze(-1).expand_as(terms), terms,
                               "a" + reduce if reduce in ("max", "min") else reduce, include_self=False)


def _check_product(a: Any, b: Any) -> None:
    if a.shape[-1] != b.shape[-2 if b.ndim > 1 else 0]:
        raise RuntimeError(f"mat1 and mat2 shapes cannot be multiplied ({'x'.join(map(str, a.shape))} and "
                           f"{'x'.join(map(str, b.shape))})")


@handler("mm", "matmul", "__matmul__", "__rmatmul__", "mv", "bmm", "spmm", "dsmm", "smm")
def _product(a: Any, b: Any) -> Any:
    _check_product(a, b)
    if _is(a) and _is(b):
        return _back(a._to_coo() @ b._to_coo(), a)
    if not _is(a):
        if a.ndim == 1:
            return _product(b._turned(), a)
        if a.ndim > b.ndim:
            return _product(a.reshape(-1, a.shape[-1]), b).view(*a.shape[:-1], b.shape[-1])
        return _product(b._turned(), a.mT).mT
    if isinstance(b, Held):
        return _product(a, b.to_dense())
    return _rows_times(a, b.unsqueeze(-1)).squeeze(-1) if b.ndim == 1 else _rows_times(a, b)


@handler("addmm", "addmv", "baddbmm")
def _addmm(input: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    made = _product(mat1, mat2)
    made = made if alpha == 1 else made * alpha
    if beta == 0:
        return made
    return _add(input if beta == 1 else input * beta, made) if _is(made) or _is(input) else input * beta + made


@handler("linear")
def _linear(input: Tensor, weight: Any, bias: Tensor | None = None) -> Tensor:
    made = _product(input, weight._turned()) if _is(weight) else _product(input, weight.t())
    return made if bias is None else made + bias


def sampled_addmm(input: CompressedTensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1.0, alpha: Any = 1.0,
                  out: Any = None) -> CompressedTensor:
    """alpha * (mat1 @ mat2) + beta * input, at the places of the sparse tensor `input` alone."""
    if input.dtype.letter not in "fc" or input.dtype.itemsize == 2:
        raise RuntimeError("sparse_sampled_addmm: Expected self to be a floating-point or complex tensor, but got "
                           f"{input.dtype.word}")
    if not _is(input) or input._name != "csr":
        raise RuntimeError(f"sampled_addmm: Expected self to be a sparse CSR tensor, got layout {input.layout}")
    for name, mat in (("mat1", mat1), ("mat2", mat2)):
        if mat.ndim < 2:
            raise RuntimeError(f"sampled_addmm: Expected {name} to be a matrix, got {mat.ndim}-D tensor")
    if mat1.shape[-1] != mat2.shape[-2]:
        raise RuntimeError(f"sampled_addmm: mat1 and mat2 shapes cannot be multiplied ({mat1.shape[-2]}x{mat1.shape[-1]} and "
                           f"{mat2.shape[-2]}x{mat2.shape[-1]})")
    which, rows, columns, values = input._elements()
    left = mat1.flatten(0, -2).index_select(0, which * mat1.shape[-2] + rows)
    right = mat2.mT.flatten(0, -2).index_select(0, which * mat2.shape[-1] + columns)
    made = (left * right).sum(-1) * alpha
    made = (made if beta == 0 else made + values * beta).reshape(input._held_values.shape)
    if out is None:
        return input._rebuilt(made)
    out._take(input._rebuilt(made))
    return out


# ------------------------------------------------------------------------------------------------------------ reductions
@handler("sum")
def _sum(a: CompressedTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    if dim is None:
        return a._held_values.sum(dtype=dtype)
    if not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    return to_compressed(a.to_dense().sum(dim, True, dtype=dtype), a._name)


@handler("prod")
def _prod(a: CompressedTensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    """The product of the elements that are there."""
    if dim is None:
        return a._held_values.prod(dtype=dtype)
    if not keepdim:
        raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
    there = a._rebuilt(FUNCTIONS["ones_like"](a._held_values.detach(), dtype=bool_)).to_dense()
    dense, kept = a.to_dense().masked_fill(there.logical_not(), 1), there
    for d in sorted(((dim,) if isinstance(dim, int) else dim), key=lambda d: d % a.ndim):
        dense, kept = dense.prod(d, True, dtype=dtype), kept.any(d, True)
    return dense.sparse_mask(kept.to_sparse(layout=a.layout))


@handler("any")
def _any(a: CompressedTensor) -> Tensor:
    return a._held_values.any()


# ---------------------------------------------------------------------------------------------------------------- shapes
@handler("t", "transpose", "swapaxes", "swapdims")
def _transpose(a: CompressedTensor, dim0: int = 0, dim1: int = 1) -> Any:
    dims = {dim0 % a.ndim, dim1 % a.ndim}
    batch = len(a._batch())
    if len(dims) == 1:
        return a
    if dims != {batch, batch + 1}:
        raise RuntimeError("transpose(): can only transpose the two sparse dimensions of a tensor of a compressed layout")
    return a._turned()


@handler("select")
def _select(a: CompressedTensor, dim: int, index: int) -> Any:
    dim, batch = dim % a.ndim, len(a._batch())
    if dim < batch:
        return make(a._held_layout, a._held_compressed.select(dim, index), a._held_plain.select(dim, index),
                    a._held_values.select(dim, index), [n for d, n in enumerate(a.shape) if d != dim])
    return a._to_coo().select(dim, index)


@handler("__getitem__")
def _get_item(a: CompressedTensor, index: Any) -> Any:
    made: Any = a
    for i in index if isinstance(index, tuple) else (index,):
        if isinstance(i, slice):
            _no_strides(a)
        if isinstance(i, bool) or not isinstance(i, int):
            raise NotImplementedError("a tensor of a compressed layout takes numbers as indices; to_dense() takes all")
        made = made.select(0, i) if isinstance(made, Held) else made[i]
    return made


@handler("is_same_size")
def _is_same_size(a: Any, b: Any) -> bool:
    return tuple(a.shape) == tuple(b.shape)


@handler("unbind")
def _unbind(a: CompressedTensor, dim: int = 0) -> Any:
    return tuple(_select(a, dim, i) for i in range(a.shape[dim]))


@handler("expand", "expand_as", "broadcast_to")
def _no_expand(a: CompressedTensor, *args: Any) -> Any:
    raise RuntimeError(f"expand is unsupported for {a._layout_word()} tensors")


@handler("unsqueeze", "view", "reshape", "as_strided", "narrow", "squeeze", "flatten")
def _no_strides(a: CompressedTensor, *args: Any) -> Any:
    raise RuntimeError(f"Sparse {a._name.upper()} tensors do not have strides")
