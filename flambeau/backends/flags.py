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
    math_sdp_enabled = _on

    def enable_flash_sdp(self, enabled: bool) -> None:
        """Accepted; there is no such kernel."""

    enable_mem_efficient_sdp = enable_math_sdp = enable_cudnn_sdp = enable_flash_sdp


cudnn = Flags("cudnn", enabled=True, benchmark=False, deterministic=False, allow_tf32=True, benchmark_limit=10)
cuda = _Scaled("cuda", matmul=Flags("cuda.matmul", allow_tf32=False, allow_fp16_reduced_precision_reduction=True,
                                    allow_bf16_reduced_precision_reduction=True))
mps = Flags("mps")
mkl = Flags("mkl")
mkldnn = Flags("mkldnn", enabled=False, deterministic=False)
openmp = Flags("openmp")
opt_einsum = Flags("opt_einsum", enabled=False, strategy=None)
quantized = Flags("quantized", engine="none", supported_engines=[])
