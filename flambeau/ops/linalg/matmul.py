"""Products of vectors and matrices: mm, bmm, mv, dot, their `add...` forms, and `matmul`, which chooses among them."""

from __future__ import annotations

from typing import Any

from ...autograd.state import state
from ...autograd.views import check_inplace, edge_of
from ...backends import registry
from ...backends.cpu.table import KERNELS
from ...tensors.parameter import Parameter
from ...tensors.shapes import broadcast_shapes, numel
from ...tensors.tensor import Tensor, wrap
from ..core import overrides as _overrides
from ..core.row import ROWS, Row, alias_of, export, public, store, write_out
from ..pointwise.arithmetic import old_order
from ..pointwise.families import promoted
from ..pointwise.functions import conj
from ..rules import moves, products

ndarray = registry.CPU_ARRAY
_small_product = KERNELS["matmul_2d"]
_SMALL = 1 << 19  # multiplications below which NumPy's product, called at once, is fastest
_CHARS = "fd"


# ------------------------------------------------------------------------------------------------------- helpers
def swapped(x: Tensor) -> Tensor:
    """x with its last two dimensions exchanged. In a plain backward pass nobody sees the view: it is made bare."""
    if state.mode == 1 and type(x._array) in registry.WINDOWS:
        return wrap(x._array.swapaxes(-1, -2))
    return x.transpose(-2, -1)


def adjoint(x: Tensor) -> Tensor:
    """The conjugate transpose of the last two dimensions."""
    return conj(swapped(x))


def scaled(x: Tensor, factor: Any) -> Tensor:
    return x if factor == 1 else x * conj(factor)


def _by_columns(strides: tuple[int, ...] | None) -> bool:
    """Whether a matrix lies column after column in memory, like a weight.t()."""
    return strides is not None and 0 < strides[-2] < strides[-1]


def _left_grad(grad: Tensor, right: Tensor) -> Tensor:
    return matmul(grad, adjoint(right))


def _right_grad(grad: Tensor, left: Tensor, strides: Any) -> Tensor:
    """left^H @ grad, in the layout of the right matrix: weight.t() gets a gradient that fits the weight uncopied."""
    if _by_columns(strides):
        return swapped(matmul(swapped(grad), conj(left)))
    return matmul(adjoint(left), grad)


def check_tensor(function: str, **tensors: Any) -> None:
    for position, (name, t) in enumerate(tensors.items(), 1):
        if not isinstance(t, Tensor):
            raise TypeError(f"{function}(): argument '{name}' (position {position}) must be Tensor, not {type(t).__name__}")


def promote(*tensors: Tensor) -> list[Tensor]:
    """The tensors in their common dtype."""
    common = promoted(tensors)
    return [t if t.dtype is common else t.to(common) for t in tensors]


def _same_dtype(a: Tensor, b: Tensor, function: str) -> None:
    if a._array.dtype != b._array.dtype:
        one, two = a.dtype, b.dtype
        if function == "addmm":
            raise RuntimeError(f"mat1 and mat2 must have the same dtype, but got {one.word} and {two.word}: convert one, "
                               f"with .to({one}) or .to({two})")
        if function in ("mm", "matmul"):
            raise RuntimeError(f"expected m1 and m2 to have the same dtype, but got: {one.c_word} != {two.c_word}: convert "
                               f"one, with .to({one}) or .to({two})")
        if function in ("dot", "vdot"):
            raise RuntimeError(f"{function} : expected both vectors to have same dtype, but found {one.word} and {two.word}")
        raise RuntimeError(f"{function}: expected scalar type {one.word} but found {two.word}")
    if a._array.dtype.kind == "b":
        kernel = {"mm": "addmm_impl_cpu_", "addmm": "addmm_impl_cpu_", "mv": "addmv_impl_cpu"}.get(function, function)
        raise NotImplementedError(f"\"{kernel}\" not implemented for 'Bool'")


def _check_dims(function: str, **wanted: tuple[Tensor, int]) -> None:
    for name, (t, n) in wanted.items():
        if t._array.ndim != n:
            what = "vector" if n == 1 else "matrix" if n == 2 else "3D tensor"
            raise RuntimeError(f"{function}: Expected {n}-D argument {name} (a {what}), but got {t._array.ndim}-D")


# ------------------------------------------------------------------------------------------------------ primitives
_mm = Row("mm", "self mat2", shape=products.product, backward=dict(
    self=lambda grad, mat2: _left_grad(grad, mat2),
    mat2=lambda grad, self, mat2_strides: _right_grad(grad, self, mat2_strides)))
_bmm = Row("bmm", "self mat2", shape=products.product, backward=dict(
    self=lambda grad, mat2: _bmm(grad, adjoint(mat2)),
    mat2=lambda grad, self, mat2_strides: _bmm_right(grad, self, mat2_strides)))
_mv = Row("mv", "self vec", shape=products.product, backward=dict(
    self=lambda grad, vec: grad.unsqueeze(-1) * conj(vec),
    vec=lambda grad, self: _mv(adjoint(self), grad)))
_dot = Row("dot", "self tensor", safe=True, shape=products.product, backward=dict(
    self=lambda grad, tensor: grad * conj(tensor),
    tensor=lambda grad, self: grad * conj(self)))
_vdot = Row("vdot", "self other", safe=True, shape=products.product, backward=dict(
    self=lambda grad, other: conj(grad) * other,
    other=lambda grad, self: grad * self))
_addmm = Row("addmm", "self mat1 mat2 beta alpha", shape=products.added, backward=dict(
    self=lambda grad, beta: scaled(grad, beta),
    mat1=lambda grad, mat2, alpha: scaled(_left_grad(grad, mat2), alpha),
    mat2=lambda grad, mat1, alpha, mat2_strides: scaled(_right_grad(grad, mat1, mat2_strides), alpha)))
_addmv = Row("addmv", "self mat vec beta alpha", safe=True, shape=products.added, backward=dict(
    self=lambda grad, beta: scaled(grad, beta),
    mat=lambda grad, vec, alpha: scaled(grad.unsqueeze(-1) * conj(vec), alpha),
    vec=lambda grad, mat, alpha: scaled(_mv(adjoint(mat), grad), alpha)))
_addr = Row("addr", "self vec1 vec2 beta alpha", safe=True, shape=products.added_outer, backward=dict(
    self=lambda grad, beta: scaled(grad, beta),
    vec1=lambda grad, vec2, alpha: scaled(_mv(grad, conj(vec2)), alpha),
    vec2=lambda grad, vec1, alpha: scaled(_mv(swapped(grad), conj(vec1)), alpha)))
_baddbmm = Row("baddbmm", "self batch1 batch2 beta alpha", shape=products.added, backward=dict(
    self=lambda grad, beta: scaled(grad, beta),
    batch1=lambda grad, batch2, alpha: scaled(_bmm(grad, adjoint(batch2)), alpha),
    batch2=lambda grad, batch1, alpha: scaled(_bmm(adjoint(batch1), grad), alpha)))
_addbmm = Row("addbmm", "self batch1 batch2 beta alpha", safe=True, shape=products.added_batch, backward=dict(
    self=lambda grad, beta: scaled(grad, beta),
    batch1=lambda grad, batch1_shape, batch2, alpha: scaled(_bmm(
        grad.unsqueeze(0).expand(batch1_shape[0], *grad.shape), adjoint(batch2)), alpha),
    batch2=lambda grad, batch2_shape, batch1, alpha: scaled(_bmm(
        adjoint(batch1), grad.unsqueeze(0).expand(batch2_shape[0], *grad.shape)), alpha)))
# A fresh result under another shape: not a view, as nobody else has the memory.
_unsafe_view = ROWS.get("_unsafe_view") or Row(
    "_unsafe_view", "self size", kernel="unsafe_view", shape=moves.reshaped, node="UnsafeViewBackward0", backward=dict(
        self=lambda grad, self_shape: grad.reshape(self_shape)))
# PyTorch squeezes the row of a vector-matrix product in place, which has a node of its own.
_squeezed = Row("_squeeze_row", "self size", safe=True, batch="view", kernel="unsafe_view", node="SqueezeBackward4",
                backward=dict(
    self=lambda grad: grad.unsqueeze(0)))


def _bmm_right(grad: Tensor, left: Tensor, strides: Any) -> Tensor:
    if _by_columns(strides):
        return swapped(_bmm(swapped(grad), conj(left)))
    return _bmm(adjoint(left), grad)


# ------------------------------------------------------------------------------------------------- mm and matmul
def mm(input: Tensor, mat2: Tensor, *, out: Tensor | None = None) -> Tensor:
    """The product of two matrices."""
    if _overrides.active:
        done, value = _overrides.dispatch(mm, (input, mat2), {} if out is None else {"out": out})
        if done:
            return value
    check_tensor("mm", input=input, mat2=mat2)
    if input._array.ndim != 2:
        raise RuntimeError(f"mm: self must be a matrix, but got a {input._array.ndim}-D tensor of shape {list(input.shape)}")
    if mat2._array.ndim != 2:
        raise RuntimeError(f"mm: mat2 must be a matrix, but got a {mat2._array.ndim}-D tensor of shape {list(mat2.shape)}")
    _check_product(input, mat2, "mm")
    result = _mm(input, mat2)
    return result if out is None else write_out("mm", out, result, (input, mat2), {})


def cannot_multiply(rows: int, inner: int, inner2: int, cols: int) -> RuntimeError:
    """The error of a product of (rows x inner) and (inner2 x cols)."""
    text = (f"mat1 and mat2 shapes cannot be multiplied ({rows}x{inner} and {inner2}x{cols}): the first has {inner} columns, "
            f"the second {inner2} rows, and these should be the same")
    if inner == cols != inner2:
        text += "; the second transposed (.mT) would fit"
    elif rows == inner2 != inner:
        text += "; the first transposed (.mT) would fit"
    return RuntimeError(text)


def _check_product(a: Tensor, b: Tensor, function: str) -> None:
    (rows, inner), (inner2, cols) = a._array.shape, b._array.shape
    if inner != inner2:
        raise cannot_multiply(rows, inner, inner2, cols)
    _same_dtype(a, b, function)


def matmul(input: Tensor, other: Tensor, *, out: Tensor | None = None) -> Tensor:
    """Matrix product by the arguments' dimensions: dot, mv, mm, or a batch of products with broadcast batch dims.

    The first lines are the cost of a small product: two plain matrices go straight to BLAS, and recording writes six
    fields.
    """
    mode = state.mode
    if mode < 2 and out is None:
        cls, kind_of = input.__class__, other.__class__
        if (cls is Tensor or cls is Parameter) and (kind_of is Tensor or kind_of is Parameter):
            x = input._array
            y = other._array
            native = x.dtype
            if x.ndim == 2 and y.ndim == 2 and native is y.dtype and native.char in _CHARS and (
                    type(x) is ndarray is type(y)):
                rows, inner = x.shape
                inner2, cols = y.shape
                if inner != inner2:
                    raise cannot_multiply(rows, inner, inner2, cols)
                return _mm.tensor(mode, _small_product(x, y) if inner > 1 and rows * cols * inner < _SMALL else (
                    _mm.cpu(x, y)), input, other)
    return _matmul_general(input, other, out)


def _matmul_general(input: Tensor, other: Tensor, out: Tensor | None) -> Tensor:
    if _overrides.active:
        done, value = _overrides.dispatch(matmul, (input, other), {} if out is None else {"out": out})
        if done:
            return value
    check_tensor("matmul", input=input, other=other)
    a, b = input._array.ndim, other._array.ndim
    if a == 0 or b == 0:
        raise RuntimeError(f"both arguments to matmul need to be at least 1D, but they are {a}D and {b}D")
    if a == 1 and b == 1:
        result = dot(input, other)
    elif a == 2 and b == 1:
        result = mv(input, other)
    elif a == 1 and b == 2:
        row = mm(input.unsqueeze(0), other)
        result = _squeezed(row, row._array.shape[1:])
    elif a == 2 and b == 2:
        result = mm(input, other)
    elif _should_fold(input, other, out is not None):
        result = _folded(input, other)
    else:
        result = _batched(input, other)
    return result if out is None else write_out("matmul", out, result, (input, other), {})


export("mm", mm, out="exact", autocast="lower", foreach=1)
export("matmul", matmul, out="exact", autocast="lower")


def _should_fold(a: Tensor, b: Tensor, has_out: bool) -> bool:
    """Whether a stack of matrices times one matrix is better one tall product than a batch (PyTorch's rule)."""
    first_larger = a._array.ndim >= b._array.ndim
    big, small = (a, b) if first_larger else (b, a)
    if not (big._array.ndim >= 3 and small._array.ndim <= 2):
        return False
    if small.requires_grad and not has_out and not state.mode & 1:
        return True
    if a._array.ndim == 2:
        return False
    if big._array.size == 0:
        return True
    x = big._array if first_larger else big._array.swapaxes(-1, -2)
    return all(x.strides[i] == x.strides[i + 1] * x.shape[i + 1] for i in range(x.ndim - 2))


def _folded(a: Tensor, b: Tensor) -> Tensor:
    first_larger = a._array.ndim >= b._array.ndim
    if first_larger:
        big, small = a, b
    else:
        big, small = b.mT, a.t() if a._array.ndim == 2 else a
    shape = big._array.shape
    rows = numel(shape[:-1])
    flat = big.reshape(rows, shape[-1])
    if small._array.ndim == 1:
        if shape[-1] != small._array.shape[0]:
            raise RuntimeError(f"size mismatch, got input ({rows}), mat ({rows}x{shape[-1]}), vec ({small._array.shape[0]})")
        return _unsafe_view(mv(flat, small), shape[:-1])
    inner, cols = small._array.shape
    if shape[-1] != inner:
        raise cannot_multiply(rows, shape[-1], inner, cols)
    made = _unsafe_view(matmul(flat, small), (*shape[:-1], cols))
    return made if first_larger else made.mT.contiguous()


def _batched(a: Tensor, b: Tensor) -> Tensor:
    x, y = a._array.shape, b._array.shape
    vector = len(y) == 1
    rows, inner = (x[-2], x[-1]) if len(x) > 1 else (1, x[0])
    inner2, cols = (y[-2], y[-1]) if not vector else (y[0], 1)
    batch_a, batch_b = x[:-2], y[:-2]
    if inner != inner2:
        count = numel(batch_a) if len(batch_a) >= len(batch_b) else numel(batch_b)
        raise RuntimeError("Expected size for first two dimensions of batch2 tensor to be: "
                           f"[{count}, {inner}] but got: [{count}, {inner2}].")
    if batch_a == batch_b:
        batch = batch_a
    else:
        try:
            batch = broadcast_shapes(batch_a, batch_b)
        except RuntimeError:
            from ..pointwise.families import broadcast_error
            raise broadcast_error(batch_a, batch_b) from None
    count = numel(batch)
    left = _stacked(a, batch, count, rows, inner)
    right = _stacked(b.unsqueeze(-1) if vector else b, batch, count, inner, cols)
    shape = batch + ((rows,) if len(x) > 1 else ()) + ((cols,) if not vector else ())
    return _unsafe_view(bmm(left, right), shape)


def _stacked(t: Tensor, batch: tuple[int, ...], count: int, rows: int, cols: int) -> Tensor:
    """The matrices of t, broadcast to the batch, along one dimension; bare where nothing is recorded."""
    if state.mode < 2 and type(t._array) is ndarray and t._array.shape[:-2] == batch and (
            state.mode == 1 or edge_of(t) is None):
        return wrap(t._array.reshape(count, rows, cols))
    return t.expand(*batch, rows, cols).reshape(count, rows, cols)


def _rmatmul(self: Tensor, other: Any) -> Tensor:
    if isinstance(other, Tensor):
        return matmul(other, self)
    done, value = _overrides.dispatch(_rmatmul, (self, other), {}) if _overrides.active else (False, None)
    return value if done else NotImplemented


def _matmul_operator(self: Tensor, other: Any) -> Tensor:
    if not isinstance(other, Tensor) and not _overrides.active:
        return NotImplemented
    return matmul(self, other)


def _imatmul(self: Tensor, other: Tensor) -> Tensor:
    check_inplace(self)
    return store(self, matmul(alias_of(self), other))


Tensor.__matmul__ = _matmul_operator
_rmatmul.__name__ = "__rmatmul__"
Tensor.__rmatmul__ = _rmatmul
Tensor.__imatmul__ = _imatmul


# ---------------------------------------------------------------------------------------- the other products
@public(autocast="lower", out="exact")
def bmm(input: Tensor, mat2: Tensor) -> Tensor:
    """The products of two batches of matrices."""
    check_tensor("bmm", input=input, mat2=mat2)
    _check_pair("bmm", input, mat2)
    return _bmm(input, mat2)


def _check_pair(function: str, batch1: Tensor, batch2: Tensor) -> None:
    for name, t in (("batch1", batch1), ("batch2", batch2)):
        if t._array.ndim != 3:
            raise RuntimeError(f"{name} must be a 3D tensor, got shape {list(t.shape)}")
    x, y = batch1._array.shape, batch2._array.shape
    if x[0] != y[0] or x[2] != y[1]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{x[0]}, {x[2]}] but got: "
                           f"[{y[0]}, {y[1]}].")
    _same_dtype(batch1, batch2, function)


@public(out="exact")
def mv(input: Tensor, vec: Tensor) -> Tensor:
    """A matrix times a vector."""
    check_tensor("mv", input=input, vec=vec)
    _check_mv(input, vec)
    _same_dtype(input, vec, "mv")
    return _mv(input, vec)


def _check_mv(mat: Tensor, vec: Tensor) -> None:
    x, v = mat._array.shape, vec._array.shape
    if len(x) != 2 or len(v) != 1:
        raise RuntimeError(f"vector + matrix @ vector expected, got 1, {len(x)}, {len(v)}")
    if x[1] != v[0]:
        raise RuntimeError(f"size mismatch, got input ({x[0]}), mat ({x[0]}x{x[1]}), vec ({v[0]})")


def _check_vectors(function: str, a: Tensor, b: Tensor) -> None:
    x, y = a._array.shape, b._array.shape
    if len(x) != 1 or len(y) != 1:
        raise RuntimeError(f"1D tensors expected, but got {len(x)}D and {len(y)}D tensors")
    _same_dtype(a, b, function)
    if x != y:
        raise RuntimeError("inconsistent tensor size, expected tensor "
                           f"[{x[0]}] and src [{y[0]}] to have the same number of elements, but got {x[0]} and {y[0]} "
                           "elements respectively")


@public(out="exact")
def dot(input: Tensor, tensor: Tensor) -> Tensor:
    """The sum of the products of two vectors' elements (without conjugation)."""
    check_tensor("dot", input=input, tensor=tensor)
    _check_vectors("dot", input, tensor)
    return _dot(input, tensor)


@public(out="exact")
def vdot(input: Tensor, other: Tensor) -> Tensor:
    """dot with the first vector conjugated."""
    check_tensor("vdot", input=input, other=other)
    _check_vectors("vdot", input, other)
    return _vdot(input, other) if input.is_complex() else _dot(input, other)


@public(aliases=("ger",))
def outer(input: Tensor, vec2: Tensor) -> Tensor:
    """All products of an element of one vector with an element of the other."""
    check_tensor("outer", input=input, vec2=vec2)
    _check_dims("outer", self=(input, 1), vec2=(vec2, 1))
    return input.reshape(input._array.shape[0], 1) * vec2


@public(out="exact")
def inner(input: Tensor, other: Tensor) -> Tensor:
    """Sums of products over the last dimension of both."""
    check_tensor("inner", input=input, other=other)
    x, y = input._array.shape, other._array.shape
    if not x or not y:
        return input * other
    if x[-1] != y[-1]:
        raise RuntimeError("inner() the last dimension must match on both input tensors but got shapes "
                           f"{list(x)} and {list(y)}")
    if len(x) == 1 and len(y) == 1:
        return dot(input, other)
    from .products import tensordot
    return tensordot(input, other, dims=([-1], [-1]))


# ------------------------------------------------------------------------------------------- beta * self + alpha * ...
def _scales(function: str, self: Tensor, beta: Any, alpha: Any) -> None:
    if not (self.is_floating_point() or self.is_complex()):
        for name, value in (("beta", beta), ("alpha", alpha)):
            if isinstance(value, (float, complex)) and not isinstance(value, bool):
                raise RuntimeError(f"{function}: For integral input tensors, argument {name} must not be a floating "
                                   "point number.")


def _check_self(function: str, self: Tensor, like: Tensor, shape: tuple[int, ...]) -> None:
    """self must have the product's dtype and broadcast to its shape."""
    if self._array.dtype != like._array.dtype:
        if function == "addmm":
            raise RuntimeError(f"self and mat2 must have the same dtype, but got {self.dtype.word} and {like.dtype.word}")
        raise RuntimeError(f"{function}: Input dtypes must be the same, got: input {self.dtype}, and the others {like.dtype}")
    own = self._array.shape
    if own != shape and (len(own) > len(shape) or any(n not in (1, m) for n, m in zip(reversed(own), reversed(shape)))):
        self.expand(shape)  # which says what does not fit


def _fused(name: str, row: Row, first: str, second: str, check: Any, **facts: Any) -> Any:
    """The public form of addmm and its kin: input, two factors, then beta and alpha by name."""

    def function(input, *args, beta=1, alpha=1, **factors):
        if len(args) >= 3:
            factors_text, scale = f"Tensor {first}, Tensor {second}", "Number alpha, " if len(args) > 3 else ""
            old_order(name, f"Number beta, Tensor input, {scale}{factors_text}",
                      f"Tensor input, {factors_text}, *, Number beta = 1, Number alpha = 1")
            numbers = [a for a in (input, *args) if not isinstance(a, Tensor)]
            input, *args = [a for a in (input, *args) if isinstance(a, Tensor)]
            beta, alpha = (numbers + [1])[:2] if numbers else (beta, alpha)
        left, right = (*args, *[factors.pop(n) for n in (first, second)[len(args):] if n in factors], None, None)[:2]
        if factors:
            raise TypeError(f"{name}() got an unexpected keyword argument '{next(iter(factors))}'")
        check_tensor(name, **{"input": input, first: left, second: right})
        if name == "addr":
            input, left, right = promote(input, left, right)
            _scales(name, input, beta, alpha)
        check(input, left, right)
        return row(input, left, right, beta, alpha)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = (f"{name}(input, {first}, {second}, *, beta=1, alpha=1): beta * input + alpha * ({first} @ {second}).")
    return public(function, **{"inplace": "buffered", **facts})


def _check_addmm(self: Tensor, mat1: Tensor, mat2: Tensor) -> None:
    if mat1._array.ndim != 2:
        raise RuntimeError(f"mat1 must be a matrix, got {mat1._array.ndim}-D tensor")
    if mat2._array.ndim != 2:
        raise RuntimeError(f"mat2 must be a matrix, got {mat2._array.ndim}-D tensor")
    _check_product(mat1, mat2, "addmm")
    _check_self("addmm", self, mat2, (mat1._array.shape[0], mat2._array.shape[1]))


def _check_addmv(self: Tensor, mat: Tensor, vec: Tensor) -> None:
    _check_mv(mat, vec)
    _same_dtype(mat, vec, "addmv")
    _check_self("addmv", self, mat, mat._array.shape[:1])


def _check_addr(self: Tensor, vec1: Tensor, vec2: Tensor) -> None:
    for name, vec in (("vec1", vec1), ("vec2", vec2)):
        if vec._array.ndim != 1:
            raise RuntimeError(f"addr: Expected 1-D argument {name}, but got {vec._array.ndim}-D")
    shape = (vec1._array.shape[0], vec2._array.shape[0])
    own = self._array.shape
    if own != shape and (len(own) > 2 or any(n not in (1, m) for n, m in zip(reversed(own), reversed(shape)))):
        raise RuntimeError(f"addr: The expanded size of the tensor must match the existing size of input.  Target sizes: "
                           f"{list(shape)}.  Tensor sizes: {list(own)}")


def _check_batches(function: str):
    def check(self: Tensor, batch1: Tensor, batch2: Tensor) -> None:
        _check_pair(function, batch1, batch2)
        x, y = batch1._array.shape, batch2._array.shape
        _check_self(function, self, batch1, (x[1], y[2]) if function == "addbmm" else (x[0], x[1], y[2]))
    return check


addmm = _fused("addmm", _addmm, "mat1", "mat2", _check_addmm, out="exact", autocast="lower")
addmv = _fused("addmv", _addmv, "mat", "vec", _check_addmv, out="exact", inplace="buffered function")
addr = _fused("addr", _addr, "vec1", "vec2", _check_addr)
baddbmm = _fused("baddbmm", _baddbmm, "batch1", "batch2", _check_batches("baddbmm"), out="exact", autocast="lower")
addbmm = _fused("addbmm", _addbmm, "batch1", "batch2", _check_batches("addbmm"), out="exact", autocast="lower")


def linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """input @ weight.T + bias over the last dimension: one addmm on a matrix, folded from whatever came."""
    x, w = input._array.shape, weight._array.shape
    if len(w) == 1:
        made = matmul(input, weight)
        return made if bias is None else made + bias
    transposed = weight.t()
    if bias is None:
        return matmul(input, transposed)
    if bias._array.ndim != 1:
        return matmul(input, transposed) + bias
    if len(x) == 2:
        return _affine(bias, input, transposed)
    if not x or x[-1] != w[1]:
        raise cannot_multiply(numel(x[:-1]), x[-1] if x else 1, w[1], w[0])
    return _affine(bias, input.reshape(numel(x[:-1]), x[-1]), transposed).view(*x[:-1], w[0])


def _affine(bias: Tensor, input: Tensor, weight: Tensor) -> Tensor:
    """bias + input @ weight for matrices."""
    _check_addmm(bias, input, weight)
    y = weight._array
    native = y.dtype
    if state.mode > 1 or native.char not in _CHARS or type(y) is not ndarray or not (
            bias._without_overrides and input._without_overrides):
        return _addmm(bias, input, weight, 1, 1)
    return _addmm.tensor(state.mode, _addmm.cpu(bias._array, input._array, y, 1, 1), bias, input, weight, 1, 1)
