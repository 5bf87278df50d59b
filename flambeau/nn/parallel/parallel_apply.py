"""Running several modules at once, each in a thread."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Any

from ...autograd.modes import is_grad_enabled, set_grad_enabled
from ...tensors.tensor import Tensor
from ..module import Module

__all__ = ["get_a_var", "parallel_apply"]


def get_a_var(obj: Any) -> Any:
    """The first tensor in containers."""
    if isinstance(obj, Tensor):
        return obj
    values = obj if isinstance(obj, (list, tuple)) else obj.values() if isinstance(obj, dict) else ()
    return next((v for v in map(get_a_var, values) if v is not None), None)


def parallel_apply(modules: Sequence[Module], inputs: Sequence[Any], kwargs_tup: Sequence[dict[str, Any]] | None = None,
                   devices: Any = None) -> list[Any]:
    """[modules[i](*inputs[i], **kwargs_tup[i]) for all i]."""
    if len(modules) != len(inputs):
        raise AssertionError(f"The number of modules {len(modules)} is not equal to the number of inputs {len(inputs)}")
    kwargs_tup = kwargs_tup or ({},) * len(modules)
    results: dict[int, Any] = {}
    recording = is_grad_enabled()

    def work(i: int, module: Module, args: Any, kwargs: dict[str, Any]) -> None:
        try:
            with set_grad_enabled(recording):
                results[i] = module(*(args if isinstance(args, (list, tuple)) else (args,)), **kwargs)
        except Exception as error:
            results[i] = error

    jobs = [(i, m, a, k) for i, (m, a, k) in enumerate(zip(modules, inputs, kwargs_tup))]
    if len(jobs) == 1:
        work(*jobs[0])
    else:
        threads = [threading.Thread(target=work, args=job) for job in jobs]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    for result in results.values():
        if isinstance(result, Exception):
            raise result
    return [results[i] for i in range(len(jobs))]
