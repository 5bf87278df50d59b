"""Every operation, grouped by family. Importing this package fills the op table and Tensor's methods."""

from ..backends.cpu import kernels  # noqa: F401  (the table of kernels comes first)
from . import (  # noqa: F401
    complex,
    convert,
    fft,
    indexing,
    linalg,
    matmul,
    pointwise,
    reductions,
    scans,
    shape,
    sorting,
    special,
    views,
)
