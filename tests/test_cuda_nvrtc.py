"""Every hand-written CUDA kernel, and a sample of the generated ones, goes through NVIDIA's compiler, which needs no GPU.

A machine that runs nothing notes the texts that programs ask it for. It has a process of its own: kernels that do nothing
must not be found by other tests.
"""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from cuda_host import HostMachine, needs_gxx

from flambeau.backends.cuda import compile as nvrtc
from flambeau.backends.cuda import driver
from flambeau.native.toolchain import BuildError

pytestmark = needs_gxx
ARCHITECTURES = ("sm_80", "sm_90")
HERE = Path(__file__)


class Noting(HostMachine):
    """Runs nothing: every kernel is one that returns at once."""

    def __init__(self):
        super().__init__()
        self.texts: dict[str, set[str]] = {}
        self.nothing = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint, ctypes.c_uint)(lambda *args: None)

    def load(self, text, device):
        self.texts.setdefault(text, set())
        return text

    def function(self, module, name):
        self.texts[module].add(name)
        return ctypes.cast(self.nothing, ctypes.c_void_p).value


def programs(fl, F):
    """Something of every family."""
    def x(*shape, dtype=fl.float32):
        return fl.zeros(*shape, dtype=dtype, device="cuda").requires_grad_(dtype.is_floating_point)

    def back(made):
        made.sum().backward()

    at = x(6, dtype=fl.int64)
    for dtype, shape in ((fl.float32, (4, 512)), (fl.bfloat16, (4, 40_000))):
        back(F.softmax(x(*shape, dtype=dtype), 1))
        back(F.layer_norm(x(*shape, dtype=dtype), shape[1:], x(shape[1], dtype=dtype), x(shape[1], dtype=dtype)))
    back(F.log_softmax(x(4, 70, 8), 1)), fl.logsumexp(x(4, 70), 1), back(F.rms_norm(x(4, 64), (64,), x(64)))
    back(F.group_norm(x(2, 6, 30), 2, x(6), x(6)))
    back(F.batch_norm(x(4, 3, 9), x(3).detach(), x(3).detach(), x(3), x(3), True))
    F.batch_norm(x(4, 3, 8, dtype=fl.float16), x(3).detach(), x(3).detach())
    back(F.batch_norm(x(4, 8, 2, 3, dtype=fl.bfloat16).to(memory_format=fl.channels_last), None, None, x(8), x(8), True))
    x(40, 16, dtype=fl.bfloat16).detach().sum(0), back(F.embedding(at, x(700, 8)))
    back(F.cross_entropy(x(6, 50), at)), back(F.nll_loss(x(6, 5, 3), x(6, 3).long()))
    F.cross_entropy(x(40_000, 4), x(40_000).long())
    for loss in (F.smooth_l1_loss, F.soft_margin_loss):
        back(loss(x(5, 6), x(5, 6).detach()))
    F.binary_cross_entropy(x(5, 6), x(5, 6).detach(), reduction="none")
    back(F.embedding(at, x(9, 512))), back(x(9, 8)[at, at]), back(x(9, 8).gather(0, at[None]))
    x(9, 8).detach().scatter_(0, at[None], 1.0).scatter_(0, at[None], x(1, 6).detach()).index_fill_(0, at, 2.0)
    for reduce in ("mean", "amax"):
        x(9, 8).scatter_reduce(0, at[None], x(1, 6), reduce)
    x(9).long().index_add(0, at, at), x(9, 8).detach().index_put_((at,), x(6, 8).detach()), F.one_hot(at, 4)
    x(9, 8)[x(9, 8) > 0], x(9, 8).nonzero(), x(9, 8).masked_fill(x(9, 8) > 0, 1.0), x(9, 8).tril(), x(9, 8).triu()
    x(9, 8).max(1), x(5000).argmin(), x(9, 8).bfloat16().max(0), x(9, 8).any(), x(9, 8).prod()
    for dim in (0, 1):
        x(9, 8).cummax(dim), x(9, 8).logcumsumexp(dim), at.cumsum(0)
    x(9, 8).sort(), x(9, 3000).sort(descending=True), x(9, 8, dtype=fl.float64).median(1), at.sort(), x(9, 8).bfloat16().topk(2)
    x(9, 8).bool().sort()
    x(9, 8).var(), x(9, 8).std(0), at.bincount(minlength=3), x(9).histc(3, 0, 1), fl.searchsorted(x(9), x(5))
    x(9, 8).mode(), fl.histogram(x(9), x(3), weight=x(9)), fl.hash_tensor(x(9).bfloat16()), fl.hash_tensor(at)
    for mode in ("mean", "max"):
        back(F.embedding_bag(at, x(9, 8), at[:2], mode=mode))
    F.embedding(at, x(9, 8).detach(), max_norm=1.0), back(F.multilabel_margin_loss(x(2, 5), x(2, 5).long()))
    back(F.ctc_loss(x(5, 2, 4), x(2, 3).long(), (5, 5), (2, 3)))
    for dtype in (fl.float32, fl.float64, fl.bfloat16):
        fl.poisson(x(9, dtype=dtype).detach()), fl._sample_dirichlet(x(9, dtype=dtype).detach())
        fl.binomial(x(9, dtype=dtype).detach(), x(9, dtype=dtype).detach())
    for name in ("exp", "erf", "lgamma", "relu", "isnan"):  # generated ones
        getattr(fl, name)(x(9, 8)), getattr(fl, name)(x(9, 8).bfloat16())
    for name in ("add", "pow", "remainder", "lt"):
        getattr(fl, name)(x(9, 8), x(8)), getattr(fl, name)(x(9, 8).double(), x(8).double())
    x(9, 8).half().sum(), x(9, 8).mean(1), x(9, 8).amax(0), x(9, 8).to(fl.float16).to(fl.int32)
    for depth in (32, 64):
        back(F.scaled_dot_product_attention(*[x(1, 1, 9, depth, dtype=fl.bfloat16) for _ in "qkv"]))
    fused = fl.compile(lambda a, b: fl.where(a > b, (a + b).tanh().bfloat16().float().clamp(max=1e999), b).half() * a.half())
    with fl.no_grad():
        for _ in range(3):
            fused(x(9, 8).detach(), x(9, 8).detach())
    assert fused._compiled.plans


def compiled(job):
    text, architecture = job
    try:
        return text, nvrtc.cubin(text, architecture)
    except BuildError as error:
        return text, str(error)


def main():
    import flambeau as fl
    import flambeau.nn.functional as F
    machine = Noting()
    driver.use(machine)
    programs(fl, F)
    jobs = [(text, nvrtc.target(text, architecture)) for text in machine.texts for architecture in ARCHITECTURES
            if "wgmma.cuh" not in text or architecture == "sm_90"]
    with ThreadPoolExecutor(2) as pool:  # the compiler works without the interpreter's lock
        made = list(pool.map(compiled, jobs))
    for text, image in made:
        if isinstance(image, str):
            sys.exit(image)
        missing = [name for name in machine.texts[text] if name.encode() not in image]
        if missing:
            sys.exit(f"no kernels {missing} in\n{text}")
    print(len(machine.texts), "texts,", len(re.findall("__global__", "".join(machine.texts))), "kernels")


def test_kernels_compile():
    try:
        nvrtc.nvrtc()
    except driver.Unavailable as why:
        pytest.skip(str(why))
    done = subprocess.run([sys.executable, str(HERE)], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PYTHONPATH": os.pathsep.join([str(HERE.parents[1]), *sys.path])})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    assert int(done.stdout.split()[0]) > 70, done.stdout


if __name__ == "__main__":
    main()
