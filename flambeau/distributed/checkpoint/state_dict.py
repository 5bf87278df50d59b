"""The state of models and optimizers by parameter names, whatever they are wrapped in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ... import distributed as dist
from ...autograd.modes import no_grad
from ...creation.factories import empty, zeros_like
from ...tensors.tensor import Tensor
from ...utils._pytree import tree_map
from ..tensor.dtensor import DTensor, distribute_tensor

__all__ = ["StateDictOptions", "get_model_state_dict", "get_optimizer_state_dict", "get_state_dict", "set_model_state_dict",
           "set_optimizer_state_dict", "set_state_dict"]


@dataclass
class StateDictOptions:
    """full_state_dict: whole tensors instead of pieces; cpu_offload: in the host's memory; ignore_frozen_params: without
    parameters that require no gradient; strict: as in load_state_dict; broadcast_from_rank0: only rank 0 has a full state to
    be set."""

    full_state_dict: bool = False
    cpu_offload: bool = False
    ignore_frozen_params: bool = False
    keep_submodule_prefixes: bool = True
    strict: bool = True
    broadcast_from_rank0: bool = False
    flatten_optimizer_state_dict: bool = False
    dsd_fqn_modifiers: str = "_fqn_modifiers"

    def __post_init__(self) -> None:
        for name in ("flatten_optimizer_state_dict",):
            if getattr(self, name):
                raise NotImplementedError(f"StateDictOptions({name}=True) is not implemented in flambeau")
        if not self.keep_submodule_prefixes:
            raise NotImplementedError("StateDictOptions(keep_submodule_prefixes=False) is not implemented in flambeau")


def _unwrapped(model: Any) -> Any:
    """The model inside of DistributedDataParallel."""
    from ...nn.parallel.distributed import DistributedDataParallel
    return model.module if isinstance(model, DistributedDataParallel) else model


def _given(value: Any, options: StateDictOptions) -> Any:
    if isinstance(value, DTensor) and options.full_state_dict:
        value = value.full_tensor()
    return value.cpu() if isinstance(value, Tensor) and options.cpu_offload else value


def get_model_state_dict(model: Any, *, submodules: Any = None, options: StateDictOptions | None = None) -> dict[str, Any]:
    """The model's state, with the names of the model that was wrapped."""
    if submodules is not None:
        raise NotImplementedError("get_model_state_dict(submodules=...) is not implemented in flambeau")
    options, inner = options or StateDictOptions(), _unwrapped(model)
    frozen = {n for n, p in inner.named_parameters() if not p.requires_grad} if options.ignore_frozen_params else set()
    return {k: _given(v, options) for k, v in inner.state_dict().items() if k not in frozen}


def _of_rank0(value: Any, options: StateDictOptions) -> Any:
    """What rank 0 has; with broadcast_from_rank0 the others have nothing and are told."""
    if not options.broadcast_from_rank0:
        return value
    told = [value if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(told, 0)
    return told[0]


def _fitting(value: Any, own: Any, options: StateDictOptions) -> Any:
    """A value of a state, as the model holds it."""
    if options.broadcast_from_rank0 and isinstance(own, Tensor):
        whole = empty(own.shape, dtype=own.dtype, device=own.device)
        if dist.get_rank() == 0:
            whole.copy_(value)
        if isinstance(own, DTensor):
            return distribute_tensor(whole, own.device_mesh, own.placements)
        dist.broadcast(whole, 0)
        return whole
    if isinstance(own, DTensor) and isinstance(value, Tensor) and not isinstance(value, DTensor):
        return distribute_tensor(value, own.device_mesh, own.placements, src_data_rank=None)
    return value


def set_model_state_dict(model: Any, model_state_dict: dict[str, Any], *, options: StateDictOptions | None = None) -> Any:
    """Gives a model its state: pieces, or (with full_state_dict) whole tensors."""
    options, inner = options or StateDictOptions(), _unwrapped(model)
    own = inner.state_dict()
    with no_grad():
        fitted = {k: _fitting(model_state_dict.get(k), own.get(k), options)
                  for k in _of_rank0(list(model_state_dict), options)}
    return inner.load_state_dict(fitted, strict=options.strict)


# ------------------------------------------------------------------------------------------------------------ optimizers
def _names(model: Any) -> dict[int, str]:
    return {id(p): n for n, p in _unwrapped(model).named_parameters()}


def _init_optim_state(optimizer: Any) -> None:
    """Makes the state of an optimizer that has made no step: as one without effect would. (PyTorch's name: examples use it.)"""
    if optimizer.state:
        return
    rates = [group["lr"] for group in optimizer.param_groups]
    kept = [(p, p._grad) for group in optimizer.param_groups for p in group["params"]]
    with no_grad():
        before = [p.detach().clone() for p, _ in kept]
        for p, _ in kept:
            if p.requires_grad:
                p.grad = zeros_like(p)
        for group in optimizer.param_groups:
            group["lr"] = 0.0
        optimizer.step()
        for (p, grad), values in zip(kept, before):
            p._grad = grad
            p.copy_(values)
        for group, rate in zip(optimizer.param_groups, rates):
            group["lr"] = rate


def get_optimizer_state_dict(model: Any, optimizers: Any, *, submodules: Any = None,
                             options: StateDictOptions | None = None) -> dict[str, Any]:
    """The optimizer's state by the names of parameters; of one that has made no step, as if one without effect had been."""
    if submodules is not None:
        raise NotImplementedError("get_optimizer_state_dict(submodules=...) is not implemented in flambeau")
    options, names = options or StateDictOptions(), _names(model)
    made: dict[str, Any] = {"state": {}, "param_groups": []}
    for optimizer in optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]:
        _init_optim_state(optimizer)
        for p, state in optimizer.state.items():
            made["state"][names[id(p)]] = {k: _given(v, options) for k, v in state.items()}
        for group in optimizer.param_groups:
            options_of = {k: v for k, v in group.items() if k not in ("params", "param_names")}
            made["param_groups"].append({**options_of, "params": [names[id(p)] for p in group["params"]]})
    return made


def set_optimizer_state_dict(model: Any, optimizers: Any, optim_state_dict: dict[str, Any], *,
                             options: StateDictOptions | None = None) -> None:
    """Gives optimizers a state that is by the names of parameters."""
    options, names = options or StateDictOptions(), _names(model)
    state = optim_state_dict.get("state", {})
    keys = _of_rank0({name: list(values) for name, values in state.items()}, options)
    groups = {name: group for group in _of_rank0(optim_state_dict.get("param_groups"), options) for name in group["params"]}
    for optimizer in optimizers if isinstance(optimizers, (list, tuple)) else [optimizers]:
        _init_optim_state(optimizer)
        for group in optimizer.param_groups:
            for p in group["params"]:
                name, own = names[id(p)], optimizer.state[p]
                if name in keys:
                    given = state.get(name, {})
                    optimizer.state[p] = {k: _own_value(given.get(k), own.get(k), options) for k in keys[name]}
            first = groups.get(names[id(group["params"][0])]) if group["params"] else None
            if first is not None:
                group.update({k: v for k, v in first.items() if k != "params"})


def _own_value(value: Any, own: Any, options: StateDictOptions) -> Any:
    if not isinstance(own, Tensor):
        value = _of_rank0(value, options)
    with no_grad():
        return tree_map(lambda v: v.clone() if isinstance(v, Tensor) else v, _fitting(value, own, options))


def get_state_dict(model: Any, optimizers: Any, *, submodules: Any = None,
                   options: StateDictOptions | None = None) -> tuple[dict[str, Any], dict[str, Any]]:
    """The states of model and optimizers."""
    return (get_model_state_dict(model, submodules=submodules, options=options),
            get_optimizer_state_dict(model, optimizers, submodules=submodules, options=options))


def set_state_dict(model: Any, optimizers: Any, *, model_state_dict: dict[str, Any], optim_state_dict: dict[str, Any],
                   options: StateDictOptions | None = None) -> Any:
    """Gives model and optimizers their states."""
    set_optimizer_state_dict(model, optimizers, optim_state_dict, options=options)
    return set_model_state_dict(model, model_state_dict, options=options)
