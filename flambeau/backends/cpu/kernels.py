"""Imports the kernels of all that `import flambeau` offers, which fills the table; layers bring theirs along."""

from .index import embedding, indexing  # noqa: F401
from .layers import linear, padding  # noqa: F401
from .linalg import matmul  # noqa: F401
from .pointwise import activations, functions, special  # noqa: F401
from .reduce import extremes, norms, reductions, scans, sorting, statistics  # noqa: F401
from .shape import joining  # noqa: F401
