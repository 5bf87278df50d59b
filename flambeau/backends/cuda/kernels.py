"""All families of kernels that are written by hand: each enters itself into the table."""

from . import (  # noqa: F401
    attention,
    conv,
    counts,
    extremes,
    indexing,
    losses,
    masks,
    moments,
    moves,
    norms,
    optim,
    pairs,
    points,
    pooling,
    products,
    resample,
    scans,
    scatter,
    sorts,
    unfold,
)
