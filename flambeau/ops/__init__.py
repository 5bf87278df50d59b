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
    fronts,
    indexing,
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

loaded_libraries: set[str] = set()


def load_library(path) -> None:
    """Not available: compiled operations are made for PyTorch's own library."""
    raise OSError(f"Could not load this library: {path} (operations compiled for PyTorch cannot run on flambeau)")


def __getattr__(name: str):
    import importlib.util
    if name == "aten":  # PyTorch's internal names; imported when asked for
        return importlib.import_module(".aten", __name__)
    if name.startswith("__") or importlib.util.find_spec(f"{__name__}.{name}"):  # a family that is not imported yet
        raise AttributeError(f"module 'flambeau.ops' has no attribute '{name}'")
    from ..library import NAMESPACES, OpNamespace  # operations that users defined
    return NAMESPACES[name] if name in NAMESPACES else OpNamespace(name)
