"""Modules as functions of their parameters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..tensors.tensor import Tensor


def functional_call(module: Any, parameter_and_buffer_dicts: Any, args: Any = None,
                    kwargs: dict[str, Any] | None = None, *, tie_weights: bool = True, strict: bool = False) -> Any:
    """module(*args, **kwargs) with the given tensors in place of its parameters and buffers of those names.

    >>> layer = nn.Linear(2, 1)
    >>> torch.func.functional_call(layer, {"weight": torch.ones(1, 2), "bias": torch.zeros(1)}, torch.ones(1, 2))
    tensor([[2.]])
    """
    from ..nn.utils.stateless import _functional_call
    return _functional_call(module, parameter_and_buffer_dicts, args, kwargs, tie_weights=tie_weights, strict=strict)


def stack_module_state(models: Sequence[Any]) -> tuple[dict[str, Tensor], dict[str, Tensor]]:
    """The parameters and the buffers of models of one kind, stacked: what vmap takes for an ensemble.

    >>> parameters, buffers = torch.func.stack_module_state([nn.Linear(2, 1) for _ in range(3)])
    >>> parameters["weight"].shape
    torch.Size([3, 1, 2])
    """
    if not len(models):
        raise RuntimeError("stack_module_state: Expected at least one model, got 0.")
    if not (all(m.training for m in models) or not any(m.training for m in models)):
        raise RuntimeError("stack_module_state: Expected all models to have the same training/eval mode.")
    if any(type(m) is not type(models[0]) for m in models):
        raise RuntimeError("stack_module_state: Expected all models to be of the same class.")
    parameters = {name: _stacked([dict(m.named_parameters())[name] for m in models])
                  for name, _ in models[0].named_parameters()}
    buffers = {name: _stacked([dict(m.named_buffers())[name] for m in models], leaf=False)
               for name, _ in models[0].named_buffers()}
    return parameters, buffers


def _stacked(tensors: list[Tensor], leaf: bool = True) -> Tensor:
    from ..ops.shape.joining import stack
    wants = tensors[0].requires_grad
    if any(t.requires_grad != wants for t in tensors):
        raise RuntimeError("Expected parameters to have the same requires_grad for each model")
    made = stack([t.detach() for t in tensors])
    return made.requires_grad_(wants) if leaf else made


def replace_all_batch_norm_modules_(root: Any) -> Any:
    """Batch norms that keep no running statistics, throughout a module: each call then stands for itself.

    >>> net = torch.func.replace_all_batch_norm_modules_(nn.Sequential(nn.BatchNorm1d(3)))
    >>> net[0].track_running_stats
    False
    """
    from ..nn.norm import _BatchNorm
    for module in root.modules():
        if isinstance(module, _BatchNorm):
            module.running_mean = module.running_var = module.num_batches_tracked = None
            module.track_running_stats = False
    return root


