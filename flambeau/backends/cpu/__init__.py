"""The CPU backend: NumPy arrays and the kernels over them."""

_NAMES = {"AVX512": "AVX512F AVX512VL AVX512BW AVX512DQ FMA3", "AVX2": "AVX2 FMA3"}  # PyTorch's name -> what the processor has


def get_cpu_capability() -> str:
    """The processor's vector instructions, as PyTorch names them."""
    from numpy._core._multiarray_umath import __cpu_features__ as found
    for name, needed in _NAMES.items():
        if all(found.get(part) for part in needed.split()):
            return name
    return "DEFAULT"
