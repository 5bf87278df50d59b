"""Where arrays live and kernels run. Nothing above this folder knows NumPy.

A backend is a module with `KERNELS` (name -> function over its arrays) and a few functions on arrays. The array's type
says which backend it belongs to: `backend_of(array)`.
"""

from __future__ import annotations

from typing import Any

_FLAGS = ("cudnn", "cuda", "mps", "mkl", "mkldnn", "openmp", "opt_einsum", "quantized")


def __getattr__(name: str) -> Any:
    """PyTorch's switches (`backends.cudnn.benchmark`...), for programs that set them."""
    if name not in _FLAGS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib
    return getattr(importlib.import_module(".flags", __name__), name)
