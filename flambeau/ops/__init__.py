"""Every operation, grouped by family. Importing this package fills the op table and Tensor's methods.

Families that only layers use (conv, losses, rnn...) are imported by those.
"""

from ..backends.cpu import kernels  # noqa: F401  (the table of kernels comes first)
from . import (  # noqa: F401  # noqa: E402, F401  (stand in front of others: after them)
    activations,
    arithmetic,
    comparison,
    complex,
    convert,
    dropout,
    embedding,
    fast_forms,
    fast_views,
    indexing,
    inplace,
    linalg,
    linear,
    matmul,
    memory,
    padding,
    pieces,
    pointwise,
    reductions,
    scans,
    shape,
    sorting,
    sparse,
    special,
    statistics,
    vector_norms,
    view_forms,
    views,
)


def __getattr__(name: str):
    if name == "aten":  # PyTorch's internal names; imported when asked for
        import importlib
        return importlib.import_module(".aten", __name__)
    if not name.startswith("__"):
        from ..library import NAMESPACES  # operations that users defined
        if name in NAMESPACES:
            return NAMESPACES[name]
    raise AttributeError(f"module 'flambeau.ops' has no attribute '{name}'")
