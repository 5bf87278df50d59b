"""`Tensor`: an array and its place in the autograd graph.

Three slots are on every operation's path: `_array` (the backend's array, with shape and strides), `_node` (where the
gradient goes: None, the operation that made it, or the leaf's AccumulateGrad) and `_counter` (None until the storage is
written in place or viewed). Everything else is a class default until it is needed. Operations attach themselves as
methods (see ops/core/row.py); this file holds what a tensor is, not what can be done with it.
"""

from __future__ import annotations

from typing import Any

from ..autograd import state as _state
from ..autograd.node import AccumulateGrad, Edge, VersionCounter
from ..autograd.state import state
from ..autograd.views import check_creation, history_of
from ..backends import registry
from ..backends.dtypes import COMPLEX
from . import dtypes as _dtypes
from .dtypes import BY_NUM, GRAD_NUMS

_new = object.__new__
_size = tuple.__new__  # a Size of numbers that are known to be ints
ndarray = registry.CPU_ARRAY


class Size(tuple):
    """A tensor's shape: a tuple that knows its number of elements.

    >>> torch.zeros(2, 3).shape
    torch.Size([2, 3])
    >>> torch.Size([2, 3]).numel()
    6
    >>> torch.Size([2]) + (3,)
    torch.Size([2, 3])
    """

    __slots__ = ()

    def __new__(cls, sizes: Any = ()):
        sizes = tuple(sizes)
        for i, n in enumerate(sizes):
            if n.__class__ is not int:
                if not hasattr(n, "__index__"):
                    raise TypeError(f"torch.Size() takes an iterable of 'int' (item {i} is '{type(n).__name__}')")
                return _size(cls, [n.__index__() for n in sizes])
        return _size(cls, sizes)

    def numel(self) -> int:
        count = 1
        for n in self:
            count *= n
        return count

    def __repr__(self) -> str:
        return f"torch.Size({list(self)})"

    def __getitem__(self, index):
        item = tuple.__getitem__(self, index)
        return Size(item) if isinstance(index, slice) else item

    def __add__(self, other):
        return Size(tuple.__add__(self, tuple(other)))

    def __radd__(self, other):
        return Size(tuple(other) + tuple(self))

    def __mul__(self, n):
        return Size(tuple.__mul__(self, n))

    __rmul__ = __mul__

    def __reduce__(self):
        return Size, (tuple(self),)


class Tensor:
    """A multi-dimensional array of one dtype that can record what is done with it.

    >>> x = torch.tensor([[1.0, 2.0], [3.0, 4.0]], requires_grad=True)
    >>> (x ** 2).sum().backward()
    >>> x.grad
    tensor([[2., 4.],
            [6., 8.]])
    >>> x.shape, x.dtype, x.device
    (torch.Size([2, 2]), torch.float32, device(type='cpu'))
    """

    __slots__ = ("__dict__", "__weakref__", "_array", "_counter", "_node")

    _base = None          # the tensor that this one is a view of
    _seen = 0             # version at which a view's _node was recorded
    _creation = None      # how a view was made, where that limits changing it (autograd/views.py)
    _view_fn = None       # replays a view that as_strided cannot express (view_as_real...)
    _grad = None
    _retains = False      # retain_grad() was called
    _has_grad_dtype = False  # whether `grad_dtype` was set, to what `_grad_dtype` says
    _grad_dtype: Any = None
    _inference = False    # made in inference mode
    _tangent = None       # forward-mode derivative, as a (level, Tensor) pair
    _without_overrides = True         # no __torch_function__ of its own: operations need not ask
    _dispatches = False   # has a __torch_dispatch__ of its own
    _answers_itself = False  # questions (`size()`, `dim()`) go to its methods, not to its __torch_function__
    _cut = None           # under anomaly detection: where its history ended (autograd/cuts.py)
    _backward_hooks = None
    name = None
    is_sparse = False
    is_quantized = False
    is_mkldnn = False
    is_nested = False
    is_mps = is_xpu = is_xla = is_ipu = is_maia = is_vulkan = is_mtia = is_hpu = is_sparse_csr = False

    def __new__(cls, *args, **kwargs):
        from ..creation.legacy import legacy_tensor
        return legacy_tensor(cls, *args, **kwargs)

    def __init__(self, *args, **kwargs):
        pass

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        if "__torch_dispatch__" in cls.__dict__:
            from ..ops.core import overrides
            cls._dispatches = cls.__torch_dispatch__ is not overrides._disabled_torch_function_impl
            if cls._dispatches:
                overrides.load_dispatcher()
        if "_without_overrides" not in cls.__dict__:
            from ..ops.core import overrides
            disabled = getattr(cls, "__torch_function__", None) is overrides._disabled_torch_function_impl
            cls._without_overrides = disabled and not cls._dispatches
            if not cls._without_overrides:
                overrides.activate()

    # ------------------------------------------------------------------------------------------ shape and type
    @property
    def shape(self) -> Size:
        return _size(Size, self._array.shape)

    def size(self, dim: int | None = None) -> Any:
        shape = self._array.shape
        if dim is None:
            return _size(Size, shape)
        if not -len(shape) <= dim < len(shape):
            raise IndexError(f"Dimension out of range (expected to be in range of [{-max(len(shape), 1)}, "
                             f"{max(len(shape), 1) - 1}], but got {dim})")
        return shape[dim]

    def dim(self) -> int:
        return self._array.ndim

    ndimension = dim

    @property
    def ndim(self) -> int:
        return self._array.ndim

    def numel(self) -> int:
        return self._array.size

    nelement = numel

    @property
    def dtype(self) -> _dtypes.dtype:
        return BY_NUM[self._array.dtype.num]

    @property
    def device(self) -> Any:
        return registry.backend_of(self._array).device_of(self._array)

    @property
    def layout(self) -> Any:
        from .formats import strided
        return strided

    @property
    def itemsize(self) -> int:
        return self._array.dtype.itemsize

    def element_size(self) -> int:
        return self._array.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return self._array.size * self._array.dtype.itemsize

    @property
    def names(self) -> tuple[None, ...]:
        """None per dimension: dimensions have no names.

        >>> torch.ones(2, 3).names
        (None, None)
        """
        return (None,) * self._array.ndim

    def has_names(self) -> bool:
        """False: dimensions have no names.

        >>> torch.ones(2).has_names()
        False
        """
        return False

    def is_floating_point(self) -> bool:
        return self.dtype.is_floating_point

    def is_complex(self) -> bool:
        return self._array.dtype.kind in COMPLEX

    def is_signed(self) -> bool:
        return self.dtype.is_signed

    @property
    def is_cpu(self) -> bool:
        return type(self._array) is ndarray or self.device.type == "cpu"

    @property
    def is_cuda(self) -> bool:
        return self.device.type == "cuda"

    @property
    def is_meta(self) -> bool:
        return self.device.type == "meta"

    def get_device(self) -> int:
        index = self.device.index
        return -1 if index is None else index

    # ------------------------------------------------------------------------------------------------- storage
    def stride(self, dim: int | None = None) -> Any:
        strides = registry.backend_of(self._array).strides(self._array)
        if dim is None:
            return strides
        self.size(dim)
        return strides[dim]

    def storage_offset(self) -> int:
        return registry.backend_of(self._array).storage_offset(self._array)

    def data_ptr(self) -> int:
        return registry.backend_of(self._array).address(self._array) if self._array.size else 0

    # ------------------------------------------------------------------------------------------------ autograd
    @property
    def requires_grad(self) -> bool:
        base = self._base
        if base is not None:  # a view of a tensor that requires grad does so too, even if it was made under no_grad
            return self._node is not None or (base._node is not None and self._array.dtype.num in GRAD_NUMS)
        return self._node is not None

    @requires_grad.setter
    def requires_grad(self, value: bool) -> None:
        if value.__class__ is not bool:
            raise RuntimeError("requires_grad must be a bool")
        self.requires_grad_(value)

    def requires_grad_(self, requires_grad: bool = True) -> Tensor:
        """Says whether operations on this leaf are recorded; only floating and complex tensors can be."""
        node = history_of(self)
        if node is not None and requires_grad and state.transforms:
            raise RuntimeError("You are attempting to call Tensor.requires_grad_() (or perhaps using "
                               "torch.autograd.functional.* APIs) inside of a function being transformed by a functorch "
                               "transform: use nested transforms, or call requires_grad_() outside.")
        if node is not None and node.__class__ is not AccumulateGrad:
            if not requires_grad:
                raise RuntimeError("you can only change requires_grad flags of leaf variables. If you want to use a "
                                   "computed variable in a subgraph that doesn't require differentiation use "
                                   "var_no_grad = var.detach().")
            return self
        if not requires_grad:
            self._node = None
        elif node is None:
            if self._array.dtype.num not in GRAD_NUMS:
                raise RuntimeError("only Tensors of floating point dtype can require gradients (or of complex dtype), got "
                                   f"{self.dtype}")
            if self._inference and not state.mode & _state.INFERENCE:
                raise RuntimeError("Setting requires_grad=True on inference tensor outside InferenceMode is not allowed.")
            self._node = AccumulateGrad(self)
        return self

    @property
    def is_leaf(self) -> bool:
        node = history_of(self)
        return node is None or node.__class__ is AccumulateGrad

    @property
    def grad_fn(self) -> Any:
        node = history_of(self)
        if node is None or node.__class__ is AccumulateGrad:
            return None
        node = node.node if node.__class__ is Edge else node
        return node if node.ctx is None else node.ctx

    @property
    def output_nr(self) -> int:
        node = self._node
        return node.nr if node.__class__ is Edge else 0

    @property
    def grad(self) -> Tensor | None:
        if state.mode & _state.CAPTURE:
            _captured_grad(self, "grad_seen")
        if self._grad is None and self._node is not None and not self.is_leaf and not self._retains:
            import warnings
            warnings.warn("The .grad attribute of a Tensor that is not a leaf Tensor is being accessed. Its .grad attribute "
                          "won't be populated during autograd.backward(). If you indeed want the .grad field to be "
                          "populated for a non-leaf Tensor, use .retain_grad() on the non-leaf Tensor.", UserWarning,
                          stacklevel=2)
        return self._grad

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, Tensor):
                raise TypeError(f"assigned grad expected to be a Tensor or None but got grad of type {type(value).__name__}")
            if value is self:
                raise RuntimeError("can't assign Variable as its own grad")
            wanted = self._grad_dtype if self._has_grad_dtype else self.dtype
            if value.dtype is not wanted and wanted is not None:
                raise RuntimeError(f"attempting to assign a gradient with dtype '{value.dtype.c_word}' to a tensor with "
                                   f"grad_dtype '{wanted.word}'. Please ensure that the gradient and the tensor "
                                   "have the same dtype")
            if value.device != self.device:
                raise RuntimeError(f"attempting to assign a gradient with device type '{value.device}' to a tensor with "
                                   f"device type '{self.device}'. Please ensure that they are on the same device")
            if value._array.shape != self._array.shape:
                raise RuntimeError(f"attempting to assign a gradient of size '{list(value.shape)}' to a tensor of size "
                                   f"'{list(self.shape)}'. Please ensure that the gradient and the tensor are the same size")
        if state.mode & _state.CAPTURE:
            _captured_grad(self, "grad_cleared")
        self._grad = value

    @grad.deleter
    def grad(self) -> None:
        self.grad = None

    @property
    def retains_grad(self) -> bool:
        return self._retains and not self.is_leaf

    @property
    def _version(self) -> int:
        if self._inference:
            raise RuntimeError("Inference tensors do not track version counter.")
        return 0 if self._counter is None else self._counter.value

    def _is_view(self) -> bool:
        return self._base is not None

    def is_inference(self) -> bool:
        return self._inference

    @property
    def data(self) -> Tensor:
        made = wrap(self._array)
        if _state.anomaly_was_on and state.mode & _state.ANOMALY and self.requires_grad:
            from ..autograd.cuts import note
            note(made, "data", ".data")
        return made

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, Tensor):
            raise TypeError(f"Variable data has to be a tensor, but got {type(value).__name__}")
        if value.is_sparse:
            raise RuntimeError("Attempted to call `variable.set_data(tensor)`, but `variable` and `tensor` have incompatible "
                               "tensor type.")
        if self._node is not None and value._array.dtype.num not in GRAD_NUMS:
            raise RuntimeError("data set to a tensor that requires gradients must be floating point or complex dtype")
        self._array = value._array
        if self._node.__class__ is AccumulateGrad:
            self._node._array = value._array  # or the old memory would live on

    # ------------------------------------------------------------------------------------------- Python's own
    def __hash__(self) -> int:
        return id(self)

    def __len__(self) -> int:
        if self._array.ndim == 0:
            raise TypeError("len() of a 0-d tensor")
        return self._array.shape[0]

    def __iter__(self):
        if self._array.ndim == 0:
            raise TypeError("iteration over a 0-d tensor")
        return iter(self.unbind(0))

    def __repr__(self, *, tensor_contents=None) -> str:
        from .printing import tensor_repr
        return tensor_repr(self, tensor_contents=tensor_contents)

    def __str__(self) -> str:
        return repr(self)

    def __format__(self, spec: str) -> str:
        from .printing import tensor_format
        return tensor_format(self, spec)

    def __setstate__(self, saved) -> None:
        if isinstance(saved, tuple):  # files of PyTorch's first releases
            from ..serialization.rebuild import set_legacy_state
            set_legacy_state(self, saved)
        else:
            self.__dict__.update(saved)

    __array_priority__ = 1000


def wrap(array: Any) -> Tensor:
    """A plain tensor over an array, without history."""
    tensor = _new(Tensor)
    tensor._array = array
    tensor._node = None
    tensor._counter = None
    if state.mode & _UNUSUAL:
        _wrap_unusual(tensor, array)
    return tensor


_UNUSUAL = _state.INFERENCE | _state.CAPTURE


def _wrap_unusual(tensor: Tensor, array: Any) -> None:
    if state.mode & _state.INFERENCE:
        tensor._inference = True
        tensor._counter = VersionCounter()  # keeps it off the fast path, which does not ask whether it may be saved
    if state.recorder is not None and type(array) is ndarray:
        tensor._array = state.recorder.adopt(array)


def _captured_grad(tensor: Tensor, what: str) -> None:
    """Tells a capture that a gradient is looked at or dropped."""
    if state.recorder is not None:
        getattr(state.recorder, what)(tensor)


def wrap_as(cls: type, array: Any) -> Tensor:
    tensor = _new(cls)
    tensor._array = array
    tensor._node = None
    tensor._counter = None
    return tensor


def is_tensor(obj: Any) -> bool:
    """Whether obj is a Tensor."""
    return isinstance(obj, Tensor)


def copy_with_layout(grad: Tensor, like: Tensor) -> Tensor:
    """A copy of a gradient, laid out like the leaf it is for when that is dense, else contiguous."""
    backend = registry.backend_of(grad._array)
    return wrap(backend.copy_with_layout(grad._array, like._array))


__all__ = ["Tensor", "Size", "wrap", "wrap_as", "is_tensor", "VersionCounter", "check_creation"]
