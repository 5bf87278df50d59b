"""Where arrays live and kernels run. Nothing above this folder knows NumPy.

A backend is a module with `KERNELS` (name -> function over its arrays) and a few functions on arrays. The array's type
says which backend it belongs to: `backend_of(array)`.
"""

from __future__ import annotations

from .flags import (  # noqa: F401  (PyTorch's switches)
    cuda,
    cudnn,
    cusparselt,
    disable_global_flags,
    flags_frozen,
    kleidiai,
    mha,
    miopen,
    mkl,
    mkldnn,
    mps,
    nnpack,
    openmp,
    opt_einsum,
    python_native,
    quantized,
    xnnpack,
)
