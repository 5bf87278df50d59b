"""The warning that typed storages are deprecated: once in a process, or each time."""

from __future__ import annotations

import warnings

_warning = {"always": False, "given": False}


def _warn_typed_storage_removal(stacklevel: int = 2) -> None:
    """Says that typed storages are deprecated: once, or each time where that is asked for."""
    if _warning["always"] or not _warning["given"]:
        warnings.warn("TypedStorage is deprecated. It will be removed in the future and UntypedStorage will be the only "
                      "storage class. This should only matter to you if you are using storages directly.  To access "
                      "UntypedStorage directly, use tensor.untyped_storage() instead of tensor.storage()", UserWarning,
                      stacklevel=stacklevel + 1)
        _warning["given"] = True


def _reset_warn_typed_storage_removal() -> None:
    _warning["given"] = False


def _get_always_warn_typed_storage_removal() -> bool:
    return _warning["always"]


def _set_always_warn_typed_storage_removal(always_warn: bool) -> None:
    assert isinstance(always_warn, bool)
    _warning["always"] = always_warn
