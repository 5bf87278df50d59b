"""What bug reports want to know of a machine: `python -m flambeau.utils.collect_env`."""

from __future__ import annotations

import os
import platform
import sys
from importlib import metadata
from typing import NamedTuple

__all__ = ["SystemEnv", "get_env_info", "get_pretty_env_info", "main"]

_PACKAGES = ("flambeau", "numpy", "scipy", "safetensors", "torch")


class SystemEnv(NamedTuple):
    """The facts."""

    torch_version: str
    is_debug_build: str
    cuda_compiled_version: str
    is_cuda_available: str
    os: str
    libc_version: str
    python_version: str
    python_platform: str
    cpu_info: str
    pip_packages: str


def get_env_info() -> SystemEnv:
    """Asks the machine."""
    import flambeau
    found = []
    for name in _PACKAGES:
        try:
            found.append(f"{name}=={metadata.version(name)}")
        except metadata.PackageNotFoundError:
            continue
    python = f"{sys.version.splitlines()[0]} ({sys.maxsize.bit_length() + 1}-bit runtime)"
    return SystemEnv(flambeau.__version__, "False", "None", str(flambeau.cuda.is_available()), platform.platform(),
                     "-".join(platform.libc_ver()), python, platform.platform(),
                     f"{platform.machine()}, {os.cpu_count()} cores, {flambeau.get_num_threads()} threads used",
                     "\n".join(found))


def pretty_str(envinfo: SystemEnv) -> str:
    packages = "\n".join(f"  {line}" for line in envinfo.pip_packages.splitlines())
    return f"""flambeau version: {envinfo.torch_version}
CUDA available: {envinfo.is_cuda_available}

OS: {envinfo.os}
Libc: {envinfo.libc_version}
Python: {envinfo.python_version}
CPU: {envinfo.cpu_info}

Packages:
{packages}"""


def get_pretty_env_info() -> str:
    """The facts as text."""
    return pretty_str(get_env_info())


def main() -> None:
    print(get_pretty_env_info())


if __name__ == "__main__":
    main()
