"""The switches that PyTorch keeps under `torch.backends`: accepted and remembered, most without effect here."""

from __future__ import annotations

import contextlib
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from enum import IntEnum
from types import ModuleType
from typing import Any


class SDPBackend(IntEnum):
    """The implementations of attention that PyTorch knows."""

    ERROR = -1
    MATH = 0
    FLASH_ATTENTION = 1
    EFFICIENT_ATTENTION = 2
    CUDNN_ATTENTION = 3
    OVERRIDEABLE = 4


chosen = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH,
           SDPBackend.OVERRIDEABLE]


def _cur_sdpa_kernel_backends(with_priority: bool = False) -> list[SDPBackend]:
    return list(chosen)


@contextlib.contextmanager
def sdpa_kernel(backends: list[SDPBackend] | SDPBackend, set_priority: bool = False) -> Iterator[dict[str, Any]]:
    """A block in which only the given implementations count as allowed."""
    if not isinstance(backends, (list, SDPBackend)):
        raise AssertionError("Backend must be an instance of SDPBackend or a list of SDPBackend instances, got "
                             f"{type(backends).__name__}")
    before = list(chosen)
    chosen[:] = dict.fromkeys([backends] if isinstance(backends, SDPBackend) else backends)
    try:
        yield {}
    finally:
        chosen[:] = before


watchers: list[Callable[[], None]] = []  # called when a switch has changed


class Flags(ModuleType):
    """A module of switches, so that `import flambeau.backends.cudnn` works; `flags(...)` sets some for a `with` block."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        for watcher in watchers:
            watcher()

    def __init__(self, name: str, **values: Any):
        super().__init__(f"{__package__}.{name}", f"The switches of PyTorch's backends.{name}.")
        sys.modules[self.__name__] = self
        self.__dict__["_name"] = name
        self.__dict__.update(values)

    def is_available(self) -> bool:
        return False

    is_built = is_available

    def version(self) -> None:
        return None

    @contextlib.contextmanager
    def flags(self, **changes: Any):
        before = dict(self.__dict__)
        for name, value in changes.items():
            setattr(self, name, value)
        try:
            yield
        finally:
            for name, value in before.items():
                if self.__dict__.get(name) is not value:
                    setattr(self, name, value)

    def __repr__(self) -> str:
        return f"<flags torch.backends.{self._name}>"


def _switch(backend: str) -> tuple[Any, Any]:
    """The two functions that ask and say whether attention may use the implementation of this name."""
    def enabled(self: Any) -> bool:
        return SDPBackend[backend] in chosen

    def enable(self: Any, enabled: bool) -> None:
        kept = [b for b in chosen if b != SDPBackend[backend]]
        chosen[:] = kept + [SDPBackend[backend]] if enabled else kept

    return enabled, enable


class _Scaled(Flags):
    """Attention's switches: remembered, but only the plain implementation exists."""

    flash_sdp_enabled, enable_flash_sdp = _switch("FLASH_ATTENTION")
    mem_efficient_sdp_enabled, enable_mem_efficient_sdp = _switch("EFFICIENT_ATTENTION")
    cudnn_sdp_enabled, enable_cudnn_sdp = _switch("CUDNN_ATTENTION")
    math_sdp_enabled, enable_math_sdp = _switch("MATH")

    def is_built(self) -> bool:
        """Whether there is a CUDA device: kernels are built when they are first used."""
        from .cuda import driver
        try:
            return driver.machine().count > 0
        except driver.Unavailable:
            return False

    def is_flash_attention_available(self) -> bool:
        """Whether there is a CUDA device, for which attention has a kernel that goes tile by tile."""
        return self.is_built()

    def is_ck_sdpa_available(self) -> bool:
        """There is no such kernel."""
        return False

    def fp16_bf16_reduction_math_sdp_allowed(self) -> bool:
        """Whether half-precision sums were allowed; they are never used."""
        return self.__dict__["_half_sums"]

    def allow_fp16_bf16_reduction_math_sdp(self, enabled: bool) -> None:
        """Does nothing but remember it: sums are taken in single precision."""
        self.__dict__["_half_sums"] = bool(enabled)

    def can_use_flash_attention(self, params: Any, debug: bool = False) -> bool:
        """There is no such kernel."""
        return False

    can_use_efficient_attention = can_use_cudnn_attention = can_use_flash_attention

    def preferred_linalg_library(self, backend: Any = None) -> str:
        """Does nothing: NumPy's LAPACK does it all."""
        return "default"

    preferred_blas_library = preferred_rocm_fa_library = preferred_linalg_library

    @property
    def SDPBackend(self) -> Any:
        """The names of PyTorch's attention kernels."""
        return SDPBackend

    def sdp_kernel(self, enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True,
                   enable_cudnn: bool = True) -> Any:
        """A block in which only the given implementations count as allowed."""
        warnings.warn("`torch.backends.cuda.sdp_kernel()` is deprecated. In the future, this context manager will be removed. "
                      "Please see `torch.nn.attention.sdpa_kernel()` for the new context manager, with updated signature.",
                      FutureWarning, stacklevel=2)
        wanted = {SDPBackend.FLASH_ATTENTION: enable_flash, SDPBackend.EFFICIENT_ATTENTION: enable_mem_efficient,
                  SDPBackend.MATH: enable_math, SDPBackend.CUDNN_ATTENTION: enable_cudnn}
        return sdpa_kernel([backend for backend, enabled in wanted.items() if enabled])


class _Matmul(Flags):
    """Matrix products on CUDA devices. `allow_tf32` and the precision of `set_float32_matmul_precision` are one switch."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "allow_tf32":
            self.__dict__["precision"] = "high" if value else "highest"
        elif name == "precision":
            self.__dict__["allow_tf32"] = value != "highest"


class _Cudnn(Flags):
    """What convolutions on CUDA devices go by."""

    def is_available(self) -> bool:
        """Whether there is a CUDA device, and cuDNN."""
        return self.version() is not None

    def version(self) -> int | None:
        """As 91900 for 9.19.0; None where there is no CUDA device or no cuDNN."""
        from .cuda import cudnn, driver
        try:
            driver.machine()
        except driver.Unavailable:
            return None
        return cudnn.version()


cudnn = _Cudnn("cudnn", enabled=True, benchmark=False, deterministic=False, allow_tf32=True, benchmark_limit=10,
               _required=False)  # whether deterministic algorithms are demanded of everything
cuda = _Scaled("cuda", __path__=[os.path.join(os.path.dirname(__file__), "cuda")],  # the backend's own modules lie there
               matmul=_Matmul("cuda.matmul", allow_tf32=False, precision="highest", allow_fp16_reduced_precision_reduction=True,
                              allow_bf16_reduced_precision_reduction=True), _half_sums=False)
mps = Flags("mps", is_macos13_or_newer=lambda minor=0: False, is_macos_or_newer=lambda major, minor: False,
            get_core_count=lambda: 0, get_name=lambda: "")
mkl = Flags("mkl", VERBOSE_OFF=0, VERBOSE_ON=1, verbose=lambda enable: contextlib.nullcontext())
mkldnn = Flags("mkldnn", enabled=False, deterministic=False)
openmp = Flags("openmp")
opt_einsum = Flags("opt_einsum", enabled=False, strategy=None)
quantized = Flags("quantized", engine="none", supported_engines=[])
nnpack = Flags("nnpack")
xnnpack = Flags("xnnpack", enabled=False)
mha = Flags("mha", get_fastpath_enabled=lambda: False, set_fastpath_enabled=lambda value: None)
miopen = Flags("miopen", immediate=False)
cusparselt = Flags("cusparselt")
kleidiai = Flags("kleidiai")
python_native = Flags("python_native", available_dsls=[], all_dsls=[])


def disable_global_flags() -> None:
    """Does nothing: the switches can be set at any time."""


def flags_frozen() -> bool:
    """Whether switches may no longer be set outside `flags(...)`: they always may."""
    return False


TABLES = (cuda.matmul.__dict__, cudnn.__dict__)  # the switches that kernels on CUDA devices go by


def on_cuda() -> list[Any]:
    """What they are now."""
    return [cuda.matmul.allow_tf32, cudnn.enabled, cudnn.benchmark, cudnn.deterministic, cudnn.allow_tf32, cudnn._required,
            *chosen]
