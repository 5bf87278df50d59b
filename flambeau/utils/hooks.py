"""Hook handles, and what stands behind a module's backward hooks."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

from ..autograd import Function
from ..autograd.hooks import RemovableHandle
from ..tensors.tensor import Tensor

__all__ = ["RemovableHandle", "unserializable_hook", "warn_if_has_hooks", "BackwardHook"]


def unserializable_hook(f: Callable) -> Callable:
    """Marks a hook that makes no sense in a file, so that saving the tensor it is on does not warn."""
    f.__torch_unserializable__ = True
    return f


def warn_if_has_hooks(tensor: Tensor) -> None:
    """Says that a tensor's hooks are not saved with it."""
    for hook in (tensor._backward_hooks or {}).values():
        if not hasattr(hook, "__torch_unserializable__"):
            warnings.warn(f"backward hook {hook!r} on tensor will not be serialized. If this is expected, you can "
                          "decorate the function with @torch.utils.hooks.unserializable_hook to suppress this "
                          "warning", stacklevel=2)


class BackwardHookFunction(Function):
    """Passes its tensors on unchanged: one node whose hooks see all gradients of a module's inputs (or outputs)."""

    @staticmethod
    def forward(ctx, *tensors):
        ctx.mark_non_differentiable(*[t for t in tensors if not t.requires_grad])
        return tensors

    @staticmethod
    def backward(ctx, *grads):
        return grads


class BackwardHook:
    """One call of a module with full backward hooks.

    The module's inputs and outputs each go through a BackwardHookFunction. Gradients reach the outputs' node first: it
    runs the pre-hooks and keeps grad_outputs. When they arrive at the inputs' node, the hooks are run with both.
    """

    def __init__(self, module: Any, user_hooks: list[Callable], user_pre_hooks: list[Callable]):
        self.module, self.user_hooks, self.user_pre_hooks = module, user_hooks, user_pre_hooks
        self.grad_outputs: tuple[Any, ...] | None = None
        self.n_outputs = self.n_inputs = -1
        self.output_tensors_index: list[int] | None = None
        self.input_tensors_index: list[int] | None = None

    def setup_input_hook(self, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The inputs as the module's forward shall see them."""

        def watch(node):
            def hook(grad_input, _):
                if self.grad_outputs is None:
                    return None  # no gradient came to the outputs in this pass
                grad_input = _spread(grad_input, self.input_tensors_index, self.n_inputs)
                for user_hook in self.user_hooks:
                    grad_input = self._replace(grad_input, user_hook(self.module, grad_input, self.grad_outputs),
                                               "Backward hook", "grad_input")
                self.grad_outputs = None
                return tuple(grad_input[i] for i in self.input_tensors_index)

            node.register_hook(hook)

        args, self.input_tensors_index = self._through_node(watch, args)
        self.n_inputs = len(args)
        return args

    def setup_output_hook(self, outputs: Any) -> Any:
        """The outputs as the caller of the module shall see them."""

        def watch(node):
            def hook(_, grad_output):
                self.grad_outputs = _spread(grad_output, self.output_tensors_index, self.n_outputs)
                for pre_hook in self.user_pre_hooks:
                    self.grad_outputs = self._replace(self.grad_outputs, pre_hook(self.module, self.grad_outputs),
                                                      "Backward pre hook", "grad_output")
                local = tuple(self.grad_outputs[i] for i in self.output_tensors_index)
                if self.input_tensors_index is None:
                    self._run_without_inputs()
                return local

            node.register_hook(hook)

        is_tuple = isinstance(outputs, tuple)
        values, self.output_tensors_index = self._through_node(watch, outputs if is_tuple else (outputs,))
        self.n_outputs = len(values)
        return values if is_tuple else values[0]

    def _run_without_inputs(self) -> None:
        """No input wants a gradient, so the hooks run as soon as grad_outputs are known, and can change nothing."""
        if self.user_hooks:
            warnings.warn("Full backward hook is firing when gradients are computed with respect to module outputs "
                          "since no inputs require gradients. See https://docs.pytorch.org/docs/main/generated/"
                          "torch.nn.Module.html#torch.nn.Module.register_full_backward_hook for more details.", stacklevel=2)
        grad_inputs = (None,) * self.n_inputs
        for user_hook in self.user_hooks:
            answer = user_hook(self.module, grad_inputs, self.grad_outputs)
            if answer is not None and not (isinstance(answer, tuple) and all(g is None for g in answer)):
                raise RuntimeError("Backward hook for Modules where no input requires gradient should always return "
                                   "None or None for all gradients.")
        self.grad_outputs = None

    @staticmethod
    def _replace(grads: tuple[Any, ...], answer: Any, who: str, what: str) -> tuple[Any, ...]:
        if answer is None:
            return grads
        answer = answer if isinstance(answer, tuple) else (answer,)
        if len(answer) != len(grads):
            raise RuntimeError(f"{who} returned an invalid number of {what}, got {len(answer)}, but expected {len(grads)}")
        return answer

    def _through_node(self, watch: Callable, args: tuple[Any, ...]) -> tuple[tuple[Any, ...], list[int] | None]:
        """The arguments with their tensors replaced by outputs of one watched node, and where the tensors stand."""
        index = [i for i, a in enumerate(args) if isinstance(a, Tensor)]
        tensors = [args[i] for i in index]
        from ..autograd.state import grad_enabled
        if not grad_enabled() or not any(t.requires_grad for t in tensors):
            return args, None
        made = BackwardHookFunction.apply(*tensors)
        made = made if isinstance(made, tuple) else (made,)
        if len(made) == 0:
            raise RuntimeError("Cannot set Module backward hook for a Module with no input Tensors.")
        nodes = [t.grad_fn for t in made if t.grad_fn is not None]
        if not nodes:
            raise RuntimeError("Error while setting up backward hooks: no output of the module's inputs has a grad_fn")
        watch(nodes[0])
        values = list(args)
        for i, t in zip(index, made):
            values[i] = t
        kind = type(args)
        return (kind(values) if kind is tuple else kind(*values)), index


def _spread(values: Any, index: list[int], length: int) -> tuple[Any, ...]:
    """The values at their places among `length`, None elsewhere."""
    result: list[Any] = [None] * length
    for i, v in zip(index, values):
        result[i] = v
    return tuple(result)

