"""Weight normalisation by hooks (the older form; parametrizations.weight_norm is the newer one)."""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor
from ..module import Module
from ..parameter import UninitializedParameter

__all__ = ["WeightNorm", "weight_norm", "remove_weight_norm"]
M = TypeVar("M", bound=Module)


def norm_except_dim(v: Tensor, pow: int = 2, dim: int = 0) -> Tensor:
    """The norm over all dimensions but one, which stays (dim=-1: over all)."""
    if dim == -1:
        return v.norm(pow)
    moved = v.transpose(0, dim)
    norms = moved.reshape(moved.size(0), -1).norm(pow, 1)
    shape = [1] * v.dim()
    shape[dim] = v.size(dim)
    return norms.view(shape)


def scaled_to(v: Tensor, g: Tensor, dim: int) -> Tensor:
    """The direction of v with the length g."""
    return v * (g / norm_except_dim(v, 2, dim))


class WeightNorm:
    """The forward pre-hook that computes the weight from its direction and length."""

    def __init__(self, name: str, dim: int | None):
        self.name = name
        self.dim = -1 if dim is None else dim

    def compute_weight(self, module: Module) -> Any:
        """The weight from `name_g` and `name_v`."""
        return scaled_to(getattr(module, self.name + "_v"), getattr(module, self.name + "_g"), self.dim)

    @staticmethod
    def apply(module: Module, name: str, dim: int | None) -> WeightNorm:
        """Replaces a parameter by its length and direction."""
        warnings.warn("`torch.nn.utils.weight_norm` is deprecated in favor of "
                      "`torch.nn.utils.parametrizations.weight_norm`.", FutureWarning, stacklevel=3)
        for hook in module._forward_pre_hooks.values():
            if isinstance(hook, WeightNorm) and hook.name == name:
                raise RuntimeError(f"Cannot register two weight_norm hooks on the same parameter {name}")
        fn = WeightNorm(name, dim)
        weight = getattr(module, name)
        if isinstance(weight, UninitializedParameter):
            raise ValueError("The module passed to `WeightNorm` can't have uninitialized parameters. Make sure to run "
                             "the dummy forward before applying weight normalization")
        del module._parameters[name]
        module.register_parameter(name + "_g", Parameter(norm_except_dim(weight, 2, fn.dim).data))
        module.register_parameter(name + "_v", Parameter(weight.data))
        setattr(module, name, fn.compute_weight(module))
        module.register_forward_pre_hook(fn)
        return fn

    def remove(self, module: Module) -> None:
        """Makes the weight a parameter again."""
        weight = self.compute_weight(module)
        delattr(module, self.name)
        del module._parameters[self.name + "_g"], module._parameters[self.name + "_v"]
        setattr(module, self.name, Parameter(weight.data))

    def __call__(self, module: Module, inputs: Any) -> None:
        setattr(module, self.name, self.compute_weight(module))


def weight_norm(module: M, name: str = "weight", dim: int | None = 0) -> M:
    """Splits a parameter into length (`name_g`) and direction (`name_v`).

    >>> layer = nn.utils.weight_norm(nn.Linear(2, 3))
    >>> layer.weight_g.shape
    torch.Size([3, 1])
    """
    WeightNorm.apply(module, name, dim)
    return module


def remove_weight_norm(module: M, name: str = "weight") -> M:
    """Undoes weight_norm.

    >>> layer = nn.utils.remove_weight_norm(nn.utils.weight_norm(nn.Linear(2, 3)))
    >>> sorted(name for name, _ in layer.named_parameters())
    ['bias', 'weight']
    """
    for key, hook in module._forward_pre_hooks.items():
        if isinstance(hook, WeightNorm) and hook.name == name:
            hook.remove(module)
            del module._forward_pre_hooks[key]
            return module
    raise ValueError(f"weight_norm of '{name}' not found in {module}")
