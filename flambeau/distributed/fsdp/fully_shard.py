"""`fully_shard`: a module's parameters are pieces, and whole only while it computes.

Hooks around the module's forward pass gather them and give them back. What the graph keeps of whole parameters is kept as
"this window of that group": the backward pass gathers them again when it gets there (`_Kept`).
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from ... import distributed as dist
from ...autograd.engine import current_task, is_running
from ...autograd.graph import saved_tensors_hooks
from ...autograd.modes import is_grad_enabled
from ...autograd.state import state as thread_state
from ...backends import registry
from ...nn.containers import ModuleDict, ModuleList
from ...nn.module import Module
from ...tensors.tensor import Tensor, wrap
from ...utils._pytree import tree_map
from ..device_mesh import DeviceMesh, init_device_mesh
from .group import Member, ParameterGroup
from .policies import CPUOffloadPolicy, MixedPrecisionPolicy, OffloadPolicy

__all__ = ["FSDPModule", "UnshardHandle", "fully_shard", "register_fsdp_forward_method"]


class _Kept:
    """A window onto a whole parameter that the backward pass will need."""

    __slots__ = ("geometry", "member", "parameter")

    def __init__(self, member: Member, tensor: Tensor | None):
        self.member, self.parameter = member, tensor is None
        if tensor is not None:
            array = tensor._array
            backend = registry.backend_of(array)
            base = member.whole._array
            offset = (backend.address(array) - backend.address(base)) // array.dtype.itemsize
            self.geometry = array.shape, backend.strides(array), offset

    def tensor(self) -> Tensor:
        self.member.group.owner.needed_in_backward()
        whole = self.member.whole
        if self.parameter:
            return whole
        backend = registry.backend_of(whole._array)
        shape, strides, offset = self.geometry
        return wrap(backend.as_strided(whole._array, shape, strides, backend.storage_offset(whole._array) + offset))


class _State:
    """What a module knows about its sharding."""

    def __init__(self, module: Any, group: ParameterGroup, policy: MixedPrecisionPolicy):
        self.module, self.group, self.policy = module, group, policy
        group.owner = self
        self.root: _State | None = None
        self.all: list[_State] = []        # at the root: all states below it and its own
        self.order: list[_State] = []      # at the root: in which they ran forward in this iteration
        self.last_order: list[_State] = []
        self.pass_task: Any = None
        self.prefetch_forward: list[_State] = []
        self.prefetch_backward: list[_State] = []
        self.depth = 0
        self.chosen = True                 # reshard_after_forward was left to us

    # ----------------------------------------------------------------------------------------------------- the tree
    def find_root(self) -> None:
        """The first module that is called is the root of all fully sharded ones in it."""
        if self.root is not None:
            return
        self.root = self
        self.all = [s for s in (_state_of(m) for m in self.module.modules()) if s is not None]
        for state in self.all:
            state.root = self
        if self.chosen:
            self.group.reshard_after_forward = False  # its backward pass comes at once

    # -------------------------------------------------------------------------------------------------- forward pass
    def before_forward(self, module: Any, args: Any, kwargs: Any) -> Any:
        self.find_root()
        root = self.root
        if self is root and not self.depth:
            root.last_order, root.order = root.order, []
        self.depth += 1
        root.order.append(self)
        self.group.unshard()
        for state in self.prefetch_forward or self._next_by_order():
            state.group.start_gathering()
        if self.policy.cast_forward_inputs and self.policy.param_dtype is not None:
            args, kwargs = _cast(args, self.policy.param_dtype), _cast(kwargs, self.policy.param_dtype)
        return args, kwargs

    def _next_by_order(self) -> list[_State]:
        """Who came after this one in the last iteration: its pieces can travel while this one computes."""
        order, place = self.root.last_order, len(self.root.order)
        if 0 < place < len(order) and order[place - 1] is self and order[place].group.gathered is None:
            return [order[place]]
        return []

    def after_forward(self, module: Any, args: Any, output: Any) -> Any:
        self.depth -= 1
        if not self.depth and (self.group.reshard_after_forward or not is_grad_enabled()):
            self.group.reshard()
        if self is self.root and not self.depth:
            for state in self.all:  # what was sent ahead for nobody
                if state.group.waiting is not None:
                    state.group.reshard()
        if is_grad_enabled():
            for t in _tensors(output):
                if t.requires_grad:
                    t.register_hook(lambda grad: self.before_backward())
        if self.policy.output_dtype is not None:
            output = _cast(output, self.policy.output_dtype)
        return output

    # ------------------------------------------------------------------------------------------------- backward pass
    def before_backward(self) -> None:
        self.pass_has_begun()
        self.needed_in_backward()

    def needed_in_backward(self) -> None:
        """Whole parameters now, and those of the module before it on the way."""
        self.pass_has_begun()
        if self.group.gathered is not None:
            return
        self.group.unshard()
        order = self.root.order
        if self.prefetch_backward:
            ahead = self.prefetch_backward
        else:
            place = max((i for i, s in enumerate(order) if s is self), default=0)
            ahead = [order[place - 1]] if place > 0 else []
        for state in ahead:
            if state.group.reshard_after_forward:
                state.group.start_gathering()

    def pass_has_begun(self) -> None:
        """Has the end of this backward pass finish all groups."""
        root = self.root or self
        task = current_task()
        if task is not None and not is_running(root.pass_task):  # (one that raised has left its task behind)
            root.pass_task = task
            task.callbacks.append(root.after_backward)

    def after_backward(self) -> None:
        self.pass_task = None
        for state in reversed(self.all or [self]):
            state.group.finish()

    # ---------------------------------------------------------------------------------------------------- saved tensors
    @contextlib.contextmanager
    def saving(self) -> Iterator[None]:
        """Inside, the graph keeps windows onto whole parameters by their place; hooks around this block get all else."""
        spans = {}
        for m in self.group.members:
            array = m.whole._array
            start = registry.backend_of(array).address(array) if array.size else 0
            spans[m] = (start, start + array.size * array.dtype.itemsize)

        outer = thread_state.saved_hooks[-1] if thread_state.saved_hooks else (lambda t: t, lambda t: t)

        def pack(tensor: Tensor) -> Any:
            array = tensor._array
            here = registry.backend_of(array).address(array) if array.size else 0
            for m, (start, end) in spans.items():
                if start <= here < end and array.dtype == m.whole._array.dtype:
                    return _Kept(m, None if tensor is m.whole else tensor)
            return outer[0](tensor)

        with saved_tensors_hooks(pack, lambda kept: kept.tensor() if isinstance(kept, _Kept) else outer[1](kept)):
            yield


def _state_of(module: Any) -> _State | None:
    return module.__dict__.get("_fsdp_state")


def _tensors(value: Any) -> list[Tensor]:
    found: list[Tensor] = []
    tree_map(lambda v: found.append(v) if isinstance(v, Tensor) else None, value)
    return found


def _cast(value: Any, dtype: Any) -> Any:
    return tree_map(lambda v: v.to(dtype) if isinstance(v, Tensor) and v.is_floating_point() else v, value)


class UnshardHandle:
    """Waits for `unshard(async_op=True)`."""

    def __init__(self, group: ParameterGroup | None = None):
        self._group = group

    def wait(self) -> None:
        if self._group is not None:
            self._group.unshard()
            self._group = None


class FSDPModule:
    """What `fully_shard` adds to a module's class."""

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        state = _state_of(self)
        state.find_root()
        if not state.group.reshard_after_forward or not is_grad_enabled():
            return super().__call__(*args, **kwargs)
        state.group.unshard()
        with state.saving():
            return super().__call__(*args, **kwargs)

    def _get_fsdp_state(self) -> Any:
        return _state_of(self)

    def unshard(self, async_op: bool = False) -> UnshardHandle | None:
        """Gathers the module's parameters (those of inner fully sharded modules stay pieces)."""
        group = _state_of(self).group
        if async_op:
            group.start_gathering()
            return UnshardHandle(group)
        group.unshard()
        return None

    def reshard(self) -> None:
        """Gives the gathered parameters back."""
        _state_of(self).group.reshard()

    def _every(self, recurse: bool) -> list[_State]:
        return [s for m in (self.modules() if recurse else [self]) if (s := _state_of(m)) is not None]

    def set_requires_gradient_sync(self, requires_gradient_sync: bool, *, recurse: bool = True) -> None:
        """Without it, gradients add up on each process, whole, until a pass with it."""
        for state in self._every(recurse):
            state.group.sync = requires_gradient_sync

    def set_is_last_backward(self, is_last_backward: bool) -> None:
        """Kept for PyTorch programs: the end of every pass finishes what it began."""

    def set_reshard_after_forward(self, reshard_after_forward: bool, recurse: bool = True) -> None:
        """Whether parameters are given back between forward and backward pass."""
        for state in self._every(recurse):
            state.chosen, state.group.reshard_after_forward = False, reshard_after_forward

    def set_reshard_after_backward(self, reshard_after_backward: bool, *, recurse: bool = True) -> None:
        """Whether parameters are given back after the backward pass (not to, saves gathering them for the next one)."""
        for state in self._every(recurse):
            state.group.reshard_after_backward = reshard_after_backward

    def set_modules_to_forward_prefetch(self, modules: list[Any]) -> None:
        """Whose parameters are sent for when this module starts its forward pass."""
        _state_of(self).prefetch_forward = [_state_of(m) for m in modules]

    def set_modules_to_backward_prefetch(self, modules: list[Any]) -> None:
        """Whose parameters are sent for when this module starts its backward pass."""
        _state_of(self).prefetch_backward = [_state_of(m) for m in modules]

    def set_gradient_divide_factor(self, factor: float) -> None:
        """What gradients are divided by, instead of the number of processes."""
        _state_of(self).group.divisor = factor

    set_reduce_scatter_divide_factor = set_gradient_divide_factor

    def _apply(self, *args: Any, **kwargs: Any) -> Any:
        """Conversions work on the pieces, which may become other objects."""
        for state in self._every(True):
            state.group.reshard()
        made = super()._apply(*args, **kwargs)
        for state in self._every(True):
            for m in state.group.members:
                module, name = m.places[0]
                fresh = module._parameters[name]
                if fresh is not m.sharded:
                    m.sharded, m.whole = fresh, None
                m.dtype = m.sharded.dtype
                m.show(m.sharded)
        return made

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        raise NotImplementedError("FSDP does not support deepcopy. Please use state dict for serialization.")


def _flat_parameters(modules: list[Any], ignored: set[Any]) -> list[tuple[Any, str, Any]]:
    """(module, name, parameter) for all parameters that no inner fully sharded module has."""
    found, seen = [], set()

    def visit(module: Any) -> None:
        if id(module) in seen or (_state_of(module) is not None and module not in modules):
            return
        seen.add(id(module))
        for name, p in module._parameters.items():
            if p is not None and not any(p is i for i in ignored):
                found.append((module, name, p))
        for child in module._modules.values():
            if child is not None:
                visit(child)

    for module in modules:
        visit(module)
    return found


def _device_type(module: Module) -> str:
    """Of the devices that a module's parameters are on, or will be."""
    found = {p.device.type for p in module.parameters()} - {"meta"}
    return found.pop() if len(found) == 1 else dist.group.WORLD.home


def fully_shard(module: Any, *, mesh: DeviceMesh | None = None, reshard_after_forward: bool | int | None = None,
                shard_placement_fn: Callable[..., Any] | None = None,
                mp_policy: MixedPrecisionPolicy = MixedPrecisionPolicy(), offload_policy: OffloadPolicy | None = None,
                ignored_params: set[Any] | None = None, dp_mesh_dims: Any = None) -> Any:
    """Spreads a module's parameters, their gradients and the optimizer's state over the processes of a mesh.

    Call it on inner modules first, then on the model: each call makes a group of parameters that is gathered and given back
    together. The optimizer is made afterwards: the parameters are then DTensors in Shard(0).

    mesh: of one dimension, or of two (copies, pieces). reshard_after_forward: gives whole parameters back before the backward
    pass, which gathers them again; by default all modules do but the outermost. mp_policy: see MixedPrecisionPolicy.
    offload_policy: keeps pieces in the host's memory, where those of a mesh of CPUs are anyway; not implemented for GPUs.
    """
    if shard_placement_fn is not None or dp_mesh_dims is not None:
        raise NotImplementedError("fully_shard(shard_placement_fn=..., dp_mesh_dims=...): parameters are cut along their first "
                                  "dimension in flambeau")
    if isinstance(reshard_after_forward, int) and not isinstance(reshard_after_forward, bool):
        raise NotImplementedError("fully_shard(reshard_after_forward=<number>): pieces of another size between the passes are "
                                  "not implemented in flambeau")
    modules = list(module) if isinstance(module, (list, tuple)) else [module]
    if len(modules) != 1:
        raise NotImplementedError("fully_shard of a list of modules is not implemented in flambeau: call it on each")
    target = modules[0]
    if not isinstance(target, Module):
        raise ValueError(f"fully_shard: expected a Module, got {type(target).__name__}")
    if isinstance(target, (ModuleList, ModuleDict)):
        raise ValueError(f"fully_shard does not support containers that do not implement forward: {target}")
    if _state_of(target) is not None:
        raise AssertionError("fully_shard was called on this module already")
    mesh = init_device_mesh(_device_type(target), (dist.get_world_size(),)) if mesh is None else mesh
    if mesh.ndim not in (1, 2):
        raise ValueError(f"fully_shard expects a 1D or 2D DeviceMesh but got {mesh}")
    if isinstance(offload_policy, CPUOffloadPolicy) and mesh.device_type != "cpu":  # there all pieces are in the host's memory
        raise NotImplementedError(f"fully_shard(offload_policy=CPUOffloadPolicy()) on a mesh of '{mesh.device_type}' is not "
                                  "implemented in flambeau")
    group = ParameterGroup(_flat_parameters(modules, ignored_params or set()), mesh, mp_policy,
                           True if reshard_after_forward is None else reshard_after_forward)
    state = _State(target, group, mp_policy)
    state.chosen = reshard_after_forward is None
    target.__dict__["_fsdp_state"] = state
    _hook(target, state)
    kind = type(target)
    target.__class__ = type(f"FSDP{kind.__name__}", (FSDPModule, kind), {})
    return module


def _hook(module: Any, state: _State) -> None:
    module.register_forward_pre_hook(state.before_forward, with_kwargs=True, prepend=True)
    module.register_forward_hook(state.after_forward)
    module.register_state_dict_pre_hook(lambda *_: state.group.reshard())
    module.register_load_state_dict_pre_hook(lambda *_: state.group.reshard())


def register_fsdp_forward_method(module: Any, method_name: str) -> None:
    """Lets another method of the module gather and give back parameters as forward does."""
    state = _state_of(module)
    if state is None:
        return
    method = getattr(module, method_name)

    def wrapped(*args: Any, **kwargs: Any) -> Any:
        args, kwargs = state.before_forward(module, args, kwargs)
        if state.group.reshard_after_forward and is_grad_enabled():
            with state.saving():
                return state.after_forward(module, args, method(*args, **kwargs))
        return state.after_forward(module, args, method(*args, **kwargs))

    module.__dict__[method_name] = wrapped


