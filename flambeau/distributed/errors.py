"""What can go wrong between processes."""

from __future__ import annotations

__all__ = ["DistBackendError", "DistError", "DistNetworkError", "DistStoreError", "QueueEmptyError"]


class DistError(RuntimeError):
    """Something between processes went wrong."""


class DistBackendError(DistError):
    """In the backend: a collective failed, did not end in time, or was called differently by different ranks."""


class DistNetworkError(DistError):
    """In the network."""


class DistStoreError(DistError):
    """In the store: most of all, a key that did not come in time."""


class QueueEmptyError(DistStoreError):
    """A store's queue has nothing to give."""
