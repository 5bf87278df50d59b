"""`DTensor`: a tensor whose elements are spread over the processes of a mesh.

The object holds this process's piece (its array, node and version counter are those of the local tensor) and shows the shape of
the whole. Autograd works on the pieces; `moves.py` says what gradients are between them. So a leaf's gradient is a piece too,
and an optimizer updates pieces without knowing it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ... import distributed as dist
from ...autograd.modes import no_grad
from ...autograd.node import start_counter
from ...creation import factories
from ...nn import init
from ...nn.parameter import Parameter
from ...ops.core.overrides import activate, retype
from ...tensors.tensor import Size, Tensor
from ..device_mesh import DeviceMesh, current_mesh
from .layout import Spec, is_partial, local_geometry, normalized
from .moves import redistributed, shared
from .placement_types import Partial, Placement, Replicate, Shard

__all__ = ["DTensor", "distribute_module", "distribute_tensor"]


def as_dtensor(local: Tensor, mesh: DeviceMesh, placements: Sequence[Placement], shape: Sequence[int]) -> DTensor:
    """A local tensor, with its history, as this process's piece."""
    if local._counter is None:
        start_counter(local)
    activate()
    made = retype(local, DTensor)
    made.__dict__.pop("_is_param", None)
    made._spec = Spec(mesh, tuple(placements), Size(shape))
    return made


def local_of(x: Tensor) -> Tensor:
    """The piece as a plain tensor, with its history."""
    if x._counter is None:
        start_counter(x)
    made = retype(x, Tensor)
    for name in ("_spec", "_is_param", "_grad"):
        made.__dict__.pop(name, None)
    return made


class DTensor(Tensor):
    """A tensor over a DeviceMesh: one placement (Shard, Replicate or Partial) per dimension of the mesh."""

    _answers_itself = True

    _spec: Spec
    _without_overrides = False  # operations ask their arguments from the first one on, not because the class exists

    def __new__(cls, local_tensor: Tensor, spec: Any, *, requires_grad: bool = False) -> DTensor:
        return as_dtensor(local_tensor.detach().requires_grad_(requires_grad), spec.mesh, spec.placements, spec.shape)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        if func.__module__ == init.__name__:  # a function of tensors' methods, which are asked in their turn
            return func.__wrapped__(*args, **(kwargs or {}))
        from .dispatch import call
        return call(func, args, kwargs or {})

    # ------------------------------------------------------------------------------------------------- in and out
    @staticmethod
    def from_local(local_tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None,
                   *, run_check: bool = False, shape: Any = None, stride: Any = None, grad_placements: Any = None) -> DTensor:
        """The distributed tensor whose piece on this process is the local tensor. Gradients go back to it.

        run_check: replicated pieces are made those of the first process. shape: of the whole, where pieces are uneven.
        """
        if isinstance(local_tensor, DTensor):
            raise RuntimeError("the local_tensor argument only accepts torch.Tensor but got DTensor value.")
        if grad_placements is not None:
            raise NotImplementedError("DTensor.from_local(grad_placements=...) is not implemented in flambeau")
        mesh = current_mesh() if device_mesh is None else device_mesh
        placements = normalized(placements, mesh, local_tensor.ndim)
        if shape is None:
            shape = list(local_tensor.shape)
            for i, p in enumerate(placements):
                if isinstance(p, Shard):
                    shape[p.dim] *= mesh.shape[i]
        elif local_geometry(shape, mesh, placements)[0] != tuple(local_tensor.shape):
            raise ValueError(f"the local tensor has shape {list(local_tensor.shape)}; a tensor of shape {list(shape)} in "
                             f"{placements} has {list(local_geometry(shape, mesh, placements)[0])} here")
        if run_check:
            from ... import distributed as dist
            for i, p in enumerate(placements):
                if isinstance(p, Replicate) and mesh.shape[i] > 1:
                    dist.broadcast(local_tensor.detach(), group_src=0, group=mesh.get_group(i))
        alias = local_tensor if local_tensor._node is None else local_tensor.view_as(local_tensor)
        return as_dtensor(alias, mesh, placements, shape)

    def to_local(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """This process's piece; gradients come back from it.

        grad_placements: how its gradient will lie, if not as the tensor does (Partial: the gradients of all processes are to
        be added).
        """
        local, spec = local_of(self), self._spec
        if grad_placements is not None:
            wanted = normalized(grad_placements, spec.mesh, self.ndim)
            added = [i for i, (a, b) in enumerate(zip(spec.placements, wanted)) if isinstance(a, Replicate) and b.is_partial()]
            if any(a != b and i not in added for i, (a, b) in enumerate(zip(spec.placements, wanted))):
                raise NotImplementedError(f"DTensor.to_local: gradients in {wanted} of a tensor in {spec.placements} are not "
                                          "implemented in flambeau")
            local = shared(local, spec.mesh, added)
        return local.view_as(local) if local.requires_grad else local

    def redistribute(self, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *,
                     async_op: bool = False, forward_dtype: Any = None, backward_dtype: Any = None) -> DTensor:
        """The same tensor in other placements."""
        if async_op:
            raise NotImplementedError("DTensor.redistribute(async_op=True) is not implemented in flambeau")
        if forward_dtype is not None or backward_dtype is not None:
            raise NotImplementedError("DTensor.redistribute with dtypes is not implemented in flambeau: cast with .to()")
        spec = self._spec
        if device_mesh is not None and device_mesh != spec.mesh:
            raise NotImplementedError("Cross device mesh comm not supported yet!")
        if placements is None:
            raise RuntimeError("placements is needed for redistribute!")
        target = normalized(placements, spec.mesh, self.ndim)
        if any(isinstance(t, Partial) and t != p for t, p in zip(target, spec.placements)):
            raise RuntimeError("Can not redistribute to Partial, redistributing to Partial is for internal use only!")
        return moved(self, target)

    def full_tensor(self, *, grad_placements: Sequence[Placement] | None = None) -> Tensor:
        """The whole tensor on every process."""
        whole = moved(self, (Replicate(),) * self._spec.mesh.ndim)
        return whole.to_local(grad_placements=grad_placements)

    @property
    def device_mesh(self) -> DeviceMesh:
        return self._spec.mesh

    @property
    def placements(self) -> tuple[Placement, ...]:
        return self._spec.placements

    @property
    def _local_tensor(self) -> Tensor:
        return local_of(self).detach()

    # ------------------------------------------------------------------------------------- the shape of the whole
    @property
    def shape(self) -> Size:
        return self._spec.shape

    def size(self, dim: int | None = None) -> Any:
        if dim is None:
            return self._spec.shape
        if not -self.ndim <= dim < self.ndim:
            raise IndexError(f"Dimension out of range (expected to be in range of [{-self.ndim}, {self.ndim - 1}], but got "
                             f"{dim})")
        return self._spec.shape[dim]

    def numel(self) -> int:
        return math.prod(self._spec.shape)

    nelement = numel

    @property
    def nbytes(self) -> int:
        return self.numel() * self.itemsize

    def stride(self, dim: int | None = None) -> Any:
        """Of a contiguous tensor with the shape of the whole: pieces may lie otherwise."""
        strides, step = [], 1
        for n in reversed(self._spec.shape):
            strides.insert(0, step)
            step *= max(n, 1)
        return tuple(strides) if dim is None else strides[dim]

    def __len__(self) -> int:
        if not self.ndim:
            raise TypeError("len() of a 0-d tensor")
        return self._spec.shape[0]

    # ---------------------------------------------------------------------------------------------------- gradients
    @property
    def grad(self) -> DTensor | None:
        found = self._grad
        return None if found is None else as_dtensor(found, self._spec.mesh, self._spec.placements, self._spec.shape)

    @grad.setter
    def grad(self, value: Tensor | None) -> None:
        if value is not None:
            if not isinstance(value, DTensor):
                raise RuntimeError("DTensor.grad: expected a DTensor or None, got a plain tensor")
            value = local_of(moved(value, self._spec.placements).detach())
        self._grad = value

    @property
    def data(self) -> DTensor:
        return as_dtensor(local_of(self).data, *self._where())

    @data.setter
    def data(self, value: Tensor) -> None:
        if not isinstance(value, DTensor):
            raise RuntimeError("DTensor.data: expected a DTensor, got a plain tensor")
        Tensor.data.fset(self, local_of(value))
        self._spec = value._spec

    def _where(self) -> tuple[Any, ...]:
        return self._spec.mesh, self._spec.placements, self._spec.shape

    def _largest_of_all(self, value: Tensor) -> None:
        """A local number becomes the largest that a process of the mesh has (GradScaler asks it for "a piece was infinite")."""
        for i, n in enumerate(self._spec.mesh.shape):
            if n > 1:
                dist.all_reduce(value, op=dist.ReduceOp.MAX, group=self._spec.mesh.get_group(i))

    # ----------------------------------------------------------------------------------------------------- Python's
    T = property(lambda self: self.permute(*range(self.ndim - 1, -1, -1)) if self.ndim else self)
    mT = property(lambda self: self.transpose(-2, -1))
    H = property(lambda self: self.T if not self.is_complex() else self.T.conj())

    def __bool__(self) -> bool:
        return bool(self.full_tensor())

    def __float__(self) -> float:
        return float(self.full_tensor())

    def __int__(self) -> int:
        return int(self.full_tensor())

    __index__ = __int__

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError("DTensor: take full_tensor() or to_local() to NumPy")

    def __repr__(self, *, tensor_contents: Any = None) -> str:
        return (f"DTensor(local_tensor={local_of(self).detach()}, device_mesh={self._spec.mesh}, "
                f"placements={self._spec.placements})")

    def __deepcopy__(self, memo: dict[int, Any]) -> DTensor:
        if id(self) in memo:
            return memo[id(self)]
        if self.grad_fn is not None:
            raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at "
                               "the moment.")
        with no_grad():
            made = as_dtensor(local_of(self).detach().clone(), *self._where())
        made.requires_grad_(self.requires_grad)
        if getattr(self, "_is_param", False):
            made._is_param = True
        elif self._grad is not None:
            made._grad = self._grad.clone()
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol: int) -> Any:
        raise RuntimeError("DTensor: a piece alone is not the tensor. Save it with torch.distributed.checkpoint, or the result "
                           "of full_tensor()")


def moved(x: DTensor, target: Sequence[Placement]) -> DTensor:
    """The same tensor in other placements; itself if it has them."""
    spec = x._spec
    if tuple(target) == spec.placements:
        return x
    return as_dtensor(redistributed(local_of(x), spec.mesh, spec.shape, spec.placements, target), spec.mesh, target, spec.shape)


# ------------------------------------------------------------------------------------------------------------ making
def distribute_tensor(tensor: Tensor, device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, *,
                      src_data_rank: int | None = 0) -> DTensor:
    """A tensor spread over a mesh: everybody gets its piece of what the process at src_data_rank has (in each dimension of the
    mesh; None: of its own tensor, without communication)."""
    mesh = current_mesh() if device_mesh is None else device_mesh
    placements = normalized(placements, mesh, tensor.ndim)
    if is_partial(placements):
        raise RuntimeError("Trying to distribute a tensor to Partial, which is for internal use only")
    if isinstance(tensor, DTensor):
        if tensor.device_mesh != mesh:
            raise ValueError(f"Cannot distribute a DTensor with device mesh {tensor.device_mesh} to a different device mesh "
                             f"{mesh}.")
        if tensor.placements != placements:
            raise ValueError(f"Cannot distribute a DTensor with placements {tensor.placements} to a different placements "
                             f"{placements}. do you want to call `redistribute` instead?")
        return tensor
    if not tensor.is_leaf:
        raise RuntimeError("`distribute_tensor` should be used to distribute leaf tensors! but found non-leaf tensor!")
    whole = tensor.detach()
    if src_data_rank is not None and mesh.size() > 1 and not tensor.is_meta:
        whole = whole.clone().contiguous()
        for i, n in enumerate(mesh.shape):
            if n > 1:
                dist.broadcast(whole, group_src=src_data_rank, group=mesh.get_group(i))
    made = as_dtensor(_cut_whole(whole, mesh, placements), mesh, placements, tensor.shape)
    return made.requires_grad_(tensor.requires_grad)


def _cut_whole(whole: Tensor, mesh: DeviceMesh, placements: Sequence[Placement]) -> Tensor:
    """This process's piece of a tensor that it has whole, in memory of its own."""
    sizes, offsets = local_geometry(whole.shape, mesh, placements)
    local = whole
    for dim, (start, length) in enumerate(zip(offsets, sizes)):
        local = local.narrow(dim, start, length)
    return local.clone().contiguous()


def distribute_module(module: Any, device_mesh: DeviceMesh | None = None, partition_fn: Callable | None = None,
                      input_fn: Callable | None = None, output_fn: Callable | None = None) -> Any:
    """Makes all parameters of a module DTensors: partition_fn(name, submodule, mesh) those that it chooses, all others are
    replicated. input_fn(module, inputs, mesh) and output_fn(module, outputs, mesh) run around the forward pass."""
    mesh = current_mesh() if device_mesh is None else device_mesh
    everywhere = (Replicate(),) * mesh.ndim
    for name, inner in module.named_modules():
        if partition_fn is not None:
            partition_fn(name, inner, mesh)
        for key, p in inner._parameters.items():
            if p is not None and not isinstance(p, DTensor):
                inner._parameters[key] = Parameter(distribute_tensor(p.detach(), mesh, everywhere), p.requires_grad)
        for key, b in inner._buffers.items():
            if b is not None and not isinstance(b, DTensor):
                inner._buffers[key] = distribute_tensor(b, mesh, everywhere)
    if input_fn is not None:
        module.register_forward_pre_hook(lambda mod, inputs: input_fn(mod, inputs, mesh))
    if output_fn is not None:
        module.register_forward_hook(lambda mod, inputs, outputs: output_fn(mod, outputs, mesh))
    return module


def _factory(name: str) -> Callable[..., DTensor]:
    def made(*size: Any, dtype: Any = None, layout: Any = None, requires_grad: bool = False,
             device_mesh: DeviceMesh | None = None, placements: Sequence[Placement] | None = None, **rest: Any) -> DTensor:
        mesh = current_mesh() if device_mesh is None else device_mesh
        value = (size[-1],) if name == "full" and "fill_value" not in rest else ()
        size = size[:-1] if value else size
        shape = tuple(size[0]) if len(size) == 1 and isinstance(size[0], (tuple, list)) else tuple(size)
        where = normalized(placements, mesh, len(shape))
        make = getattr(factories, name)
        local = make(local_geometry(shape, mesh, where)[0], *value, dtype=dtype, device=mesh.device_type, **rest)
        return as_dtensor(local, mesh, where, shape).requires_grad_(requires_grad)

    made.__name__ = made.__qualname__ = name
    made.__doc__ = f"torch.{name} over a mesh: each process makes its piece."
    return made


empty, full, ones, zeros = [_factory(name) for name in ("empty", "full", "ones", "zeros")]
