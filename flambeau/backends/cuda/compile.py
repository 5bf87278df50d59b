"""From the text of CUDA kernels to machine code, by NVRTC, kept on disk. No GPU is needed for that."""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os

from ...native import toolchain
from .driver import shared_library

_P = ctypes.c_void_p
OPTIONS = ("--std=c++17", "--fmad=true", "--disable-warnings", "-default-device")


@functools.cache
def nvrtc() -> ctypes.CDLL:
    """NVIDIA's compiler: the system's, or the one of a wheel (nvidia-cuda-nvrtc)."""
    return shared_library("libnvrtc", (13, 12), "run-time compiler")


@functools.cache
def _version() -> str:
    major, minor = ctypes.c_int(), ctypes.c_int()
    nvrtc().nvrtcVersion(ctypes.byref(major), ctypes.byref(minor))
    return f"{major.value}.{minor.value}"


@functools.cache
def _headers() -> dict[str, str]:
    return {path.name: path.read_text() for path in sorted(toolchain.HERE.glob("*.cuh"))}


def target(text: str, architecture: str) -> str:
    """What a text is built for on a device: sm_90a instead of sm_90 where it uses what only this very architecture has."""
    return architecture + "a" if "wgmma.cuh" in text else architecture


def cubin(text: str, architecture: str) -> bytes:
    """Machine code for an architecture ("sm_90"), from the cache or fresh. Raises toolchain.BuildError."""
    parts = (text, architecture, _version(), *OPTIONS, *_headers().values())
    name = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
    target = toolchain.folder() / f"kernels-{name}.cubin"
    try:
        image = target.read_bytes()
        if hashlib.sha256(image[32:]).digest() == image[:32]:
            return image[32:]
    except OSError:
        pass
    image = _compiled(text, architecture)
    try:
        work = target.with_suffix(f".{os.getpid()}")
        work.write_bytes(hashlib.sha256(image).digest() + image)
        os.replace(work, target)
    except OSError:  # a full disk: it is compiled again next time
        pass
    return image


def _compiled(text: str, architecture: str) -> bytes:
    library, program = nvrtc(), _P()
    headers = _headers()
    count = len(headers)
    texts = (ctypes.c_char_p * count)(*[t.encode() for t in headers.values()])
    names = (ctypes.c_char_p * count)(*[n.encode() for n in headers])
    _check(library.nvrtcCreateProgram(ctypes.byref(program), text.encode(), b"kernels.cu", count, texts, names), text)
    try:
        options = [o.encode() for o in (*OPTIONS, f"--gpu-architecture={architecture}")]
        code = library.nvrtcCompileProgram(program, len(options), (ctypes.c_char_p * len(options))(*options))
        if code:
            size = ctypes.c_size_t()
            library.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            library.nvrtcGetProgramLog(program, log)
            raise toolchain.BuildError(f"NVRTC failed:\n{log.value.decode()[:3000]}\n{text}")
        size = ctypes.c_size_t()
        _check(library.nvrtcGetCUBINSize(program, ctypes.byref(size)), text)
        image = ctypes.create_string_buffer(size.value)
        _check(library.nvrtcGetCUBIN(program, image), text)
        return image.raw
    finally:
        library.nvrtcDestroyProgram(ctypes.byref(program))


def _check(code: int, text: str) -> None:
    if code:
        raise toolchain.BuildError(f"NVRTC answered {code} for\n{text}")
