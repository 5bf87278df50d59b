"""Hooks that send a bucket's gradients as they are, or in half the bytes."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Any

from .... import distributed as dist
from ....autograd.modes import no_grad
from ....futures import Future
from ....tensors import dtypes
from ....tensors.tensor import Tensor

__all__ = ["allreduce_hook", "bf16_compress_hook", "bf16_compress_wrapper", "fp16_compress_hook", "fp16_compress_wrapper"]


class BuiltinCommHookType(Enum):
    """Hooks that DistributedDataParallel knows by name (`_register_builtin_comm_hook`)."""

    ALLREDUCE, FP16_COMPRESS = 0, 1


def mean_of(tensor: Tensor, group: Any) -> Future:
    """A future of the mean over all processes; the tensor is used up."""
    with no_grad():
        tensor.div_(dist.get_world_size(group))

    def arrived(done: Future) -> Tensor:
        done.value()  # raises what went wrong
        return tensor

    return dist.all_reduce(tensor, group=group, async_op=True).get_future().then(arrived)


def allreduce_hook(process_group: Any, bucket: Any) -> Future:
    """The mean, as without a hook."""
    return mean_of(bucket.buffer(), process_group)


def _compressed(dtype: Any, process_group: Any, bucket: Any) -> Future:
    buffer = bucket.buffer()

    def restored(done: Future) -> Tensor:
        with no_grad():
            return buffer.copy_(done.value())

    return mean_of(buffer.to(dtype), process_group).then(restored)


def fp16_compress_hook(process_group: Any, bucket: Any) -> Future:
    """Gradients travel as float16."""
    return _compressed(dtypes.float16, process_group, bucket)


def bf16_compress_hook(process_group: Any, bucket: Any) -> Future:
    """Gradients travel as bfloat16."""
    return _compressed(dtypes.bfloat16, process_group, bucket)


def _wrapped(hook: Callable[[Any, Any], Future], dtype: Any) -> Callable[[Any, Any], Future]:
    def wrapper(state: Any, bucket: Any) -> Future:
        before = bucket.buffer()
        bucket.set_buffer(before.to(dtype))

        def restored(done: Future) -> Tensor:
            made = done.value()
            made = made[0] if isinstance(made, (list, tuple)) else made
            with no_grad():
                before.copy_(made)
            bucket.set_buffer(before)
            return before

        return hook(state, bucket).then(restored)

    return wrapper


def fp16_compress_wrapper(hook: Callable[[Any, Any], Future]) -> Callable[[Any, Any], Future]:
    """Another hook, which sees the gradients in float16."""
    return _wrapped(hook, dtypes.float16)


def bf16_compress_wrapper(hook: Callable[[Any, Any], Future]) -> Callable[[Any, Any], Future]:
    """Another hook, which sees the gradients in bfloat16."""
    return _wrapped(hook, dtypes.bfloat16)
