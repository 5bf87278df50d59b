"""How flambeau was put together: what `torch.__config__.show()` prints."""

from __future__ import annotations


def show() -> str:
    """A few lines about the build."""
    import platform

    from . import __version__
    return (f"flambeau {__version__} built with:\n  - Python {platform.python_version()}\n  - NumPy (BLAS and elementwise "
            "kernels)\n  - CPU capability usage: as NumPy\n")


def parallel_info() -> str:
    """How many threads are used."""
    from .settings import get_num_interop_threads, get_num_threads
    return (f"flambeau parallel info:\n\tat::get_num_threads() : {get_num_threads()}\n\tat::get_num_interop_threads() : "
            f"{get_num_interop_threads()}\n")
