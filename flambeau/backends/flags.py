"""The switches that PyTorch keeps under `torch.backends`: accepted and remembered, most without effect here."""

from __future__ import annotations

import contextlib
import sys
from types import ModuleType
from typing import Any


class Flags(ModuleType):
    """A module of switches, so that `import flambeau.backends.cudnn` works; `flags(...)` sets some for a `with` block."""

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
        self.__dict__.update(changes)
        try:
            yield
        finally:
            self.__dict__.update(before)

    def __repr__(self) -> str:
        return f"<flags torch.backends.{self._name}>"


class _Scaled(Flags):
    """Attention's switches: only the plain implementation exists."""

    def _off(self) -> bool:
        return False

    def _on(self) -> bool:
        return True

    flash_sdp_enabled = mem_efficient_sdp_enabled = cudnn_sdp_enabled = _off
    math_sdp_enabled = fp16_bf16_reduction_math_sdp_allowed = _on
    is_flash_attention_available = is_ck_sdpa_available = _off

    def can_use_flash_attention(self, params: Any, debug: bool = False) -> bool:
        """There is no such kernel."""
        return False

    can_use_efficient_attention = can_use_cudnn_attention = can_use_flash_attention

    def preferred_linalg_library(self, backend: Any = None) -> str:
        """NumPy's LAPACK does it all."""
        return "default"

    preferred_blas_library = preferred_rocm_fa_library = preferred_linalg_library

    @property
    def SDPBackend(self) -> Any:
        """The names of PyTorch's attention kernels."""
        from ..nn.attention import SDPBackend
        return SDPBackend

    @contextlib.contextmanager
    def sdp_kernel(self, enable_flash: bool = True, enable_math: bool = True, enable_mem_efficient: bool = True,
                   enable_cudnn: bool = True):
        """Accepted; the plain implementation is used."""
        yield {}

    def enable_flash_sdp(self, enabled: bool) -> None:
        """Accepted; there is no such kernel."""

    enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = enable_flash_sdp
    allow_fp16_bf16_reduction_math_sdp = enable_flash_sdp


cudnn = Flags("cudnn", enabled=True, benchmark=False, deterministic=False, allow_tf32=True, benchmark_limit=10)
cuda = _Scaled("cuda", matmul=Flags("cuda.matmul", allow_tf32=False, allow_fp16_reduced_precision_reduction=True,
                                    allow_bf16_reduced_precision_reduction=True))
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
    """Accepted: the switches can be set at any time."""


def flags_frozen() -> bool:
    """Whether switches may no longer be set outside `flags(...)`: they always may."""
    return False
