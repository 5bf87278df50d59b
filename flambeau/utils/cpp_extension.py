"""`torch.utils.cpp_extension`: extensions in C++ bind to PyTorch's own library, which is not here."""

from ..missing import refused

__all__ = """BuildExtension CUDAExtension CppExtension SyclExtension check_compiler_is_gcc check_compiler_ok_for_platform
    get_compiler_abi_compatibility_and_version get_cxx_compiler include_paths is_ninja_available library_paths load
    load_inline verify_ninja_availability""".split()
CUDA_HOME = ROCM_HOME = None
globals().update(refused("utils.cpp_extension", "extensions in C++ are not implemented", " ".join(__all__)))


def is_ninja_available() -> bool:
    """Nothing is built, so nobody looked for the tool that would."""
    return False
