"""All families of kernels that are written by hand: each enters itself into the table."""

from . import (
    counts,  # noqa: F401
    extremes,  # noqa: F401
    indexing,  # noqa: F401
    losses,  # noqa: F401
    masks,  # noqa: F401
    moments,  # noqa: F401
    moves,  # noqa: F401
    norms,  # noqa: F401
    pairs,  # noqa: F401
    products,  # noqa: F401
    scans,  # noqa: F401
    scatter,  # noqa: F401
    sorts,  # noqa: F401
    uniques,  # noqa: F401
)
