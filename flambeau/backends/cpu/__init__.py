"""The CPU backend: NumPy arrays and the kernels over them."""


def get_cpu_capability() -> str:
    """The vector instructions that kernels use, as PyTorch names them: NumPy chooses by itself."""
    return "DEFAULT"
