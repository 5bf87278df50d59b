"""Imports the kernels of all that `import flambeau` offers, which fills the table; layers bring theirs along."""

from . import (  # noqa: F401  # noqa: F401
    activations,
    embedding,
    indexing,
    linear,
    matmul,
    padding,
    pointwise,
    reductions,
    scans,
    shape,
    sorting,
    special,
)
