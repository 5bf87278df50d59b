"""Imports every module of kernels, which fills the table."""

from . import (  # noqa: F401  # noqa: F401
    activations,
    ctc,
    embedding,
    indexing,
    linear,
    losses,
    matmul,
    padding,
    pointwise,
    reductions,
    scans,
    shape,
    sorting,
    special,
)
