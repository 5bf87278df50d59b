"""`torch.func`: transformations of functions of tensors (grad, vjp, jvp, Jacobians, vmap) and calls without state."""

from __future__ import annotations

from .batching import vmap
from .derivatives import grad, grad_and_value, hessian, jacfwd, jacrev, jvp, linearize, vjp
from .modules import functional_call, replace_all_batch_norm_modules_, stack_module_state
from .rearranging import rearrange


def functionalize(func, *, remove: str = "mutations"):
    """Does nothing: flambeau records no programs in which changes in place would have to be removed.

    >>> def twice(x):
    ...     return x.clone().mul_(2)
    >>> torch.func.functionalize(twice)(torch.ones(2))
    tensor([2., 2.])
    """
    if remove not in ("mutations", "mutations_and_views"):
        raise RuntimeError(f"functionalize(f, remove='mutations'): received invalid argument for remove={remove}. Valid "
                           "options are: remove='mutations' and remove='mutations_and_views'")
    return func


def debug_unwrap(tensor, *, recurse: bool = True):
    """The tensor of all examples behind one inside vmap (of one level, unless `recurse`); any other tensor as it is.

    >>> torch.func.debug_unwrap(torch.ones(2))
    tensor([1., 1.])
    """
    from ..backends.batched.arrays import BatchedArray, innermost
    from ..tensors.tensor import wrap
    array = tensor._array
    if type(array) is not BatchedArray:
        return tensor
    return wrap(innermost(array) if recurse else array.examples)


__all__ = ["debug_unwrap", "functional_call", "functionalize", "grad", "grad_and_value", "hessian", "jacfwd", "jacrev",
           "jvp", "linearize", "rearrange", "replace_all_batch_norm_modules_", "stack_module_state", "vjp", "vmap"]
