"""A fixture that looks for what a test left behind: processes, files in shared memory, open descriptors."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import re
import time

import pytest


@pytest.fixture(autouse=True)
def nothing_is_left():
    """After every test: no child process, no file in shared memory, no more open descriptors than before."""
    before = set(os.listdir("/dev/shm"))
    descriptors = len(os.listdir("/proc/self/fd"))
    yield
    if multiprocessing.active_children():
        gc.collect()
    assert not [p for p in multiprocessing.active_children() if p.name.startswith(("Process-", "Fork"))]
    assert soon(lambda: not {name for name in abandoned(before) if "torch_" not in name}), abandoned(before)
    assert len(os.listdir("/proc/self/fd")) <= descriptors + 10  # PyTorch closes some of its own later


def soon(condition, limit=100):
    """Whether a condition comes true: looked at until it does, as long as the slowest machine may need."""
    deadline = time.monotonic() + limit
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def abandoned(before):
    """The files in shared memory that are new and that no process has in use: other programs make files there, too."""
    new = set(os.listdir("/dev/shm")) - before
    for pid in filter(str.isdigit, os.listdir("/proc") if new else ()):
        with contextlib.suppress(OSError):  # it is gone, or another user's
            new -= set(re.findall(r"/dev/shm/(\S+)", open(f"/proc/{pid}/maps").read()))
            new -= {os.path.basename(os.readlink(f"/proc/{pid}/fd/{fd}")) for fd in os.listdir(f"/proc/{pid}/fd")}
    return new
