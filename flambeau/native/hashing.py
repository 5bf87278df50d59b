"""SHA-256 without OpenSSL: `hashlib` loads all of that library, longer than it takes to hash what a program's start needs."""

from __future__ import annotations

try:
    from _sha2 import sha256  # type: ignore[import-not-found]  # Python 3.12 and later
except ImportError:
    try:
        from _sha256 import sha256  # type: ignore[import-not-found]  # 3.11
    except ImportError:
        from hashlib import sha256

__all__ = ["sha256"]
