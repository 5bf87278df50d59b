"""Every operation, grouped by family. Importing this package fills the op table and Tensor's methods."""

from ..backends.cpu import kernels  # noqa: F401  (the table of kernels comes first)
from . import (  # noqa: F401
    activations,
    arithmetic,
    comparison,
    complex,
    convert,
    fft,
    indexing,
    inplace,
    linalg,
    matmul,
    memory,
    norms,
    pieces,
    pointwise,
    reductions,
    scans,
    shape,
    signal,
    sorting,
    special,
    statistics,
    view_forms,
    views,
)
