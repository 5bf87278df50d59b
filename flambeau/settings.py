"""Switches that programs set at their start. Those that have no effect here are kept and reported back."""

from __future__ import annotations

import math
import sys
import warnings
from typing import Any

from .backends.cpu import parallel as _parallel
from .backends.registry import OutOfMemoryError

__all__ = ["use_deterministic_algorithms", "are_deterministic_algorithms_enabled",
           "is_deterministic_algorithms_warn_only_enabled", "set_deterministic_debug_mode",
           "get_deterministic_debug_mode",
           "set_float32_matmul_precision", "get_float32_matmul_precision", "set_num_threads", "get_num_threads",
           "set_num_interop_threads", "get_num_interop_threads", "set_flush_denormal", "set_warn_always",
           "is_warn_always_enabled", "compiled_with_cxx11_abi", "init_num_threads", "get_device_module",
           "has_lapack",
           "has_mkl", "has_openmp", "has_spectral", "is_vulkan_available", "SymInt", "SymFloat", "SymBool", "sym_int",
           "sym_float", "sym_max", "sym_min", "sym_not", "sym_sqrt", "sym_sum", "sym_ite", "OutOfMemoryError"]

_state: dict[str, Any] = {"deterministic": False, "warn_only": False, "warn_always": False,
                          "interop": None}
_MODES = ("default", "warn", "error")


def use_deterministic_algorithms(mode: bool, *, warn_only: bool = False) -> None:
    """Operations for which PyTorch has no deterministic form then fail or warn, and fresh memory is filled
    (utils.deterministic.fill_uninitialized_memory). The results are the same every time in any case."""
    for i, (name, value) in enumerate((("mode", mode), ("warn_only", warn_only))):
        if not isinstance(value, bool):
            where = f"argument '{name}' (position {i + 1})" if not i else f"argument '{name}'"
            raise TypeError(f"_set_deterministic_algorithms(): {where} must be bool, not {type(value).__name__}")
    _state["deterministic"], _state["warn_only"] = bool(mode), bool(warn_only)
    from .backends import flags
    flags.cudnn._required = bool(mode)


def alert_not_deterministic(name: str) -> None:
    """What an operation calls for which PyTorch has no deterministic form."""
    if not _state["deterministic"]:
        return
    if not _state["warn_only"]:
        raise RuntimeError(f"{name} does not have a deterministic implementation, but you set "
                           "'torch.use_deterministic_algorithms(True)'. You can turn off determinism just for this operation, "
                           "or you can use the 'warn_only=True' option, if that's acceptable for your application. You can "
                           "also file an issue at https://github.com/pytorch/pytorch/issues to help us prioritize adding "
                           "deterministic support for this operation.")
    warnings.warn(f"{name} does not have a deterministic implementation, but you set "
                  "'torch.use_deterministic_algorithms(True, warn_only=True)'. You can file an issue at "
                  "https://github.com/pytorch/pytorch/issues to help us prioritize adding deterministic support for this "
                  "operation.", stacklevel=4)


def fills_memory() -> bool:
    """Whether memory that an operation leaves as it is has to be filled, so that programs that read it do so alike."""
    if not _state["deterministic"]:
        return False
    chosen = sys.modules.get(f"{__package__}.utils.deterministic")  # True unless a program says otherwise there
    return chosen is None or chosen.fill_uninitialized_memory


def are_deterministic_algorithms_enabled() -> bool:
    return _state["deterministic"]


def is_deterministic_algorithms_warn_only_enabled() -> bool:
    """Whether an operation without a deterministic form only warns.

    >>> torch.is_deterministic_algorithms_warn_only_enabled()
    False
    """
    return _state["warn_only"]


def set_deterministic_debug_mode(debug_mode: int | str) -> None:
    """0 or "default", 1 or "warn", 2 or "error".

    >>> torch.set_deterministic_debug_mode("warn")
    >>> torch.get_deterministic_debug_mode()
    1
    >>> torch.set_deterministic_debug_mode(0)
    """
    if not isinstance(debug_mode, (int, str)):
        raise TypeError(f"debug_mode must be str or int, but got {type(debug_mode)}")
    if isinstance(debug_mode, str):
        if debug_mode not in _MODES:
            raise RuntimeError(f"invalid value of debug_mode, expected one of `default`, `warn`, `error`, but got "
                               f"{debug_mode}")
        debug_mode = _MODES.index(debug_mode)
    if debug_mode not in (0, 1, 2):
        raise RuntimeError(f"invalid value of debug_mode, expected 0, 1, or 2, but got {debug_mode}")
    use_deterministic_algorithms(debug_mode > 0, warn_only=debug_mode == 1)


def get_deterministic_debug_mode() -> int:
    """0 (off), 1 (warns) or 2 (raises): what happens where an operation has no deterministic form.

    >>> torch.get_deterministic_debug_mode()
    0
    """
    if not _state["deterministic"]:
        return 0
    return 1 if _state["warn_only"] else 2


def set_float32_matmul_precision(precision: str) -> None:
    """How float32 is multiplied on CUDA devices: "high" and "medium" allow TF32, as `backends.cuda.matmul.allow_tf32` does.
    The CPU always multiplies float32 in float32."""
    if precision not in ("highest", "high", "medium"):
        import warnings
        warnings.warn(f"{precision} is not one of 'highest', 'high', or 'medium'; the current setting is kept.",
                      UserWarning, stacklevel=2)
        return
    from .backends import flags
    flags.cuda.matmul.precision = precision


def get_float32_matmul_precision() -> str:
    """"highest", "high" or "medium"."""
    from .backends import flags
    return flags.cuda.matmul.precision


def _count(name: str, n: Any) -> int:
    if isinstance(n, bool) or not isinstance(n, int):
        raise TypeError(f"{name} expects an int, but got {type(n).__name__}")
    if n <= 0:
        raise RuntimeError(f"{name} expects a positive integer, but got {n}")
    return n


def set_num_threads(num: int) -> None:
    """How many cores one operation may use.

    >>> before = torch.get_num_threads()
    >>> torch.set_num_threads(1)
    >>> torch.get_num_threads()
    1
    >>> torch.set_num_threads(before)
    """
    _parallel.set_num_threads(_count("set_num_threads", num))


def get_num_threads() -> int:
    return _parallel.get_num_threads()


def set_num_interop_threads(num: int) -> None:
    """Does nothing but remember it: operations are never run side by side.

    >>> torch.set_num_interop_threads(1)
    """
    _state["interop"] = _count("set_num_interop_threads", num)


def get_num_interop_threads() -> int:
    """1: operations do not run beside each other.

    >>> torch.get_num_interop_threads()
    2
    """
    return _state["interop"] or _parallel.get_num_threads()


def set_flush_denormal(mode: bool) -> bool:
    """Does nothing: denormal numbers are kept. False says so, as on processors that cannot.

    >>> torch.set_flush_denormal(False)
    False
    """
    return False


def set_warn_always(b: bool) -> None:
    """Whether warnings that are said once per process are said each time.

    >>> torch.set_warn_always(False)
    """
    _state["warn_always"] = bool(b)


def is_warn_always_enabled() -> bool:
    """Whether warnings that are said once per process are said each time.

    >>> torch.is_warn_always_enabled()
    False
    """
    return _state["warn_always"]


_given: set[str] = set()
_OWN = __name__.partition(".")[0]


def warn_once(key: str, text: str) -> None:
    """A UserWarning about the caller's line that comes once per process, or always after set_warn_always(True)."""
    if key in _given and not _state["warn_always"]:
        return
    _given.add(key)
    frame, level = sys._getframe(), 1
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _OWN:
        frame, level = frame.f_back, level + 1
    warnings.warn(text, UserWarning, stacklevel=level)


def compiled_with_cxx11_abi() -> bool:
    """True, as of every PyTorch since 2.6.

    >>> torch.compiled_with_cxx11_abi()
    True
    """
    return True



def init_num_threads() -> None:
    """Does nothing: the number of threads is set by set_num_threads.

    >>> torch.init_num_threads()
    """


def get_device_module(device: Any = None) -> Any:
    """The module of a device's functions (flambeau.cuda).

    >>> torch.get_device_module("cpu").__name__
    'flambeau.cpu'
    """
    import importlib

    from .tensors.device import to_device
    if device is None:
        from .tensors.pinning import has_device
        kind = "cuda" if has_device() else "cpu"
    else:
        kind = to_device(device).type
    return importlib.import_module(f".{kind}", __package__)


def is_vulkan_available() -> bool:
    """False: there is no backend for Vulkan.

    >>> torch.is_vulkan_available()
    False
    """
    return False


has_lapack, has_mkl, has_openmp, has_spectral = True, False, False, True


class SymInt:
    """A size that is not known yet, in PyTorch's compiler. Here sizes are ints: the name is for isinstance.

    >>> isinstance(torch.zeros(3).shape[0], torch.SymInt)
    False
    """


class SymFloat:
    """See SymInt.

    >>> isinstance(1.5, torch.SymFloat)
    False
    """


class SymBool:
    """See SymInt.

    >>> isinstance(True, torch.SymBool)
    False
    """


def sym_int(a: Any) -> int:
    return int(a)


def sym_float(a: Any) -> float:
    return float(a)


def sym_max(a: Any, b: Any) -> Any:
    return max(a, b)


def sym_min(a: Any, b: Any) -> Any:
    return min(a, b)


def sym_not(a: Any) -> bool:
    return not a


def sym_sqrt(a: Any) -> float:
    return math.sqrt(a)


def sym_sum(args: Any) -> Any:
    return sum(args)


def sym_ite(b: Any, t: Any, f: Any) -> Any:
    return t if b else f
