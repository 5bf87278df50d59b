"""Where arrays live and kernels run. Nothing above this folder knows NumPy.

A backend is a module with `KERNELS` (name -> function over its arrays) and a few functions on arrays. The array's type
says which backend it belongs to: `backend_of(array)`.
"""

from __future__ import annotations

from .flags import cuda, cudnn, mkl, mkldnn, mps, openmp, opt_einsum, quantized  # noqa: F401  (PyTorch's switches)
