"""Every operation, grouped by family. Importing this package fills the op table and Tensor's methods.

Families that only layers use (conv, losses, rnn...) are imported by those.
"""

from ..backends.cpu import kernels  # noqa: F401  (the table of kernels comes first)
from . import fast_calls, internal, linalg, quantized, sparse  # noqa: F401
from .index import embedding, indexing  # noqa: F401
from .layers import dropout, linear, padding  # noqa: F401
from .linalg import matmul  # noqa: F401
from .pointwise import activations, arithmetic, comparison, complex, convert, functions, special  # noqa: F401
from .random import distributions, factories  # noqa: F401
from .reduce import reductions, scans, sorting, statistics, vector_norms  # noqa: F401
from .shape import joining, memory, ordering, reshaping, splitting, view_forms, views  # noqa: F401

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
    from .core.namespaces import NAMESPACES, OpNamespace
    return NAMESPACES[name] if name in NAMESPACES else OpNamespace(name)
