"""DLPack under the name that older programs import."""

from enum import IntEnum

from ..tensors.interop import from_dlpack, to_dlpack

__all__ = ["DLDeviceType", "from_dlpack", "to_dlpack"]


class DLDeviceType(IntEnum):
    """DLPack's numbers of devices, as `Tensor.__dlpack_device__` gives them."""

    kDLCPU, kDLCUDA, kDLCUDAHost, kDLOpenCL = 1, 2, 3, 4
    kDLVulkan, kDLMetal, kDLVPI, kDLROCM, kDLROCMHost, kDLExtDev = 7, 8, 9, 10, 11, 12
    kDLCUDAManaged, kDLOneAPI, kDLWebGPU, kDLHexagon, kDLMAIA = 13, 14, 15, 16, 17
