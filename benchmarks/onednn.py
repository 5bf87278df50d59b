"""Imported before torch: keeps PyTorch from AMX, which some machines report without granting it. See tests/conftest.py."""

import os

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")
