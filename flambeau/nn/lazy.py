"""Lazy modules: parameters get their shapes from the first input, then the module becomes an ordinary one."""

from __future__ import annotations

from typing import Any

from ..autograd.modes import no_grad
from .parameter import UninitializedBuffer, UninitializedParameter, is_lazy

__all__ = ["LazyModuleMixin", "UninitializedBuffer", "UninitializedParameter", "is_lazy"]


class LazyModuleMixin:
    """Put it before the module's own base, and define `initialize_parameters(*args)`.

    The constructor registers UninitializedParameters. Before the first forward `initialize_parameters` sees its
    arguments and materialises them; then the hooks go, and the module's class becomes `cls_to_become`.
    """

    cls_to_become: type | None = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if cls.__module__.startswith("flambeau.") and not cls.__name__.startswith("_"):
            cls.cls_to_become = cls.__bases__[-1]  # LazyConv2d(_LazyConv, Conv2d): the ordinary class comes last

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self._load_hook = self._register_load_state_dict_pre_hook(self._lazy_load_hook)
        self._initialize_hook = self.register_forward_pre_hook(self._infer_parameters, with_kwargs=True)

    def _lazy_load_hook(self, state_dict: Any, prefix: str, *rest: Any) -> None:
        """A state_dict brings the shapes, too."""
        for name, tensor in [*self._parameters.items(), *self._buffers.items()]:
            value = state_dict.get(prefix + name)
            if tensor is not None and value is not None and is_lazy(tensor) and not is_lazy(value):
                with no_grad():
                    tensor.materialize(value.shape)

    def initialize_parameters(self, *args: Any, **kwargs: Any) -> None:
        """Gives the parameters their shapes and first values, from the arguments of forward."""
        raise NotImplementedError(f"initialize_parameters is not implemented for {type(self).__name__}")

    def has_uninitialized_params(self) -> bool:
        """Whether a parameter or buffer of this module (not of its children) still has no shape."""
        return any(is_lazy(t) for t in [*self._parameters.values(), *self._buffers.values()])

    def _infer_parameters(self, module: Any, args: tuple[Any, ...], kwargs: dict[str, Any] | None = None) -> None:
        """The forward pre-hook: runs once."""
        module.initialize_parameters(*args, **(kwargs or {}))
        if module.has_uninitialized_params():
            raise RuntimeError(f"module {self._get_name()} has not been fully initialized")
        module._initialize_hook.remove()
        module._load_hook.remove()
        del module._initialize_hook, module._load_hook
        if module.cls_to_become is not None:
            module.__class__ = module.cls_to_become

    def _replicate_for_data_parallel(self):
        raise RuntimeError("Modules with uninitialized parameters can't be used with `DataParallel`. Run a dummy "
                           "forward pass to correctly initialize the modules")
