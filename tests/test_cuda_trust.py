"""What a user of a CUDA device relies on: memory that does not grow, threads and streams that do not mix, the CPU's losses,
checkpoints that travel, errors that say what happened and where. Marked `gpu`: what a GPU that the host plays cannot show."""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from cuda_host import HostMachine, needs_gxx

import flambeau as fl
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.backends.cuda import driver

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent / "examples"))


def real_gpu() -> bool:
    try:
        return not isinstance(driver.machine(), HostMachine)
    except driver.Unavailable:
        return False


needs_gpu = [pytest.mark.gpu, pytest.mark.skipif(not real_gpu(), reason="needs an NVIDIA GPU")]
pytestmark = needs_gxx


def gpu(function):
    for mark in needs_gpu:
        function = mark(function)
    return function


def network():
    fl.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.LayerNorm(16), nn.GELU(), nn.Linear(16, 4))


# --------------------------------------------------------------------------------------------------------------- memory
def test_steps_leave_no_memory_behind(cuda):
    model, x, at = network().to(cuda), fl.randn(8, 6).to(cuda), (fl.arange(8) % 4).to(cuda)
    optimizer = fl.optim.AdamW(model.parameters(), 1e-3)

    def steps(count):
        for _ in range(count):
            loss = F.cross_entropy(F.dropout(model(x), 0.1), at)
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        del loss
        gc.collect()
        return fl.cuda.memory_allocated(), fl.cuda.memory_reserved()

    after_ten = steps(10)
    assert steps(1000 if real_gpu() else 50) == after_ten


def test_an_error_leaves_no_memory_behind(cuda):
    x = fl.ones(1 << 18, device=cuda)
    gc.collect()
    before = fl.cuda.memory_allocated()
    for _ in range(3):
        with pytest.raises(RuntimeError, match="must match"):
            (x * 2) + (x[:5] * 3)
        with pytest.raises(IndexError):
            x[fl.tensor([1 << 18], device=cuda)].cpu()
    gc.collect()
    assert fl.cuda.memory_allocated() == before


# --------------------------------------------------------------------------------------------------- threads and streams
@gpu
def test_two_threads_on_two_streams(cuda):
    x, at = fl.randn(64, 6).to(cuda), (fl.arange(64) % 4).to(cuda)
    models = [network().to(cuda) for _ in range(3)]
    fl.cuda.synchronize()
    made, wrong = [None] * 3, []

    def train(i, stream):
        try:
            with fl.cuda.stream(stream):
                optimizer = fl.optim.Adam(models[i].parameters(), 1e-2)
                for _ in range(100):
                    optimizer.zero_grad()
                    F.cross_entropy(models[i](x), at).backward()
                    optimizer.step()
                made[i] = [p.detach().cpu() for p in models[i].parameters()]
        except Exception as error:
            wrong.append(error)

    train(0, None)
    threads = [threading.Thread(target=train, args=(i, fl.cuda.Stream())) for i in (1, 2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong
    for alone, first, second in zip(*made, strict=True):
        assert fl.equal(alone, first)
        assert fl.equal(alone, second)


@gpu
def test_streams_wait_for_each_other(cuda):
    first, second = fl.cuda.Stream(), fl.cuda.Stream()
    x = fl.ones(1 << 22, device=cuda)
    for _ in range(20):
        first.wait_stream(fl.cuda.current_stream())
        with fl.cuda.stream(first):
            y = x * 2
            for _ in range(10):
                y = y + 1
        event = first.record_event()
        with fl.cuda.stream(second):
            event.wait()
            z = y * 3
        y.record_stream(second)
        del y
        with fl.cuda.stream(first):
            fl.full((1 << 22,), 7.0, device=cuda)  # would overwrite what the other stream reads, were it not for record_stream
        fl.cuda.current_stream().wait_stream(second)
        assert z.min().item() == z.max().item() == 36


# -------------------------------------------------------------------------------------------------------------- training
def curve(device, steps, data, alphabet, length=64, batch=16, **sizes):
    from char_gpt import GPT, make_optimizer
    fl.manual_seed(0)
    model = GPT(alphabet, length, **sizes)
    starts = fl.randint(len(data) - length - 1, (steps, batch))
    model = model.to(device)
    optimizer, losses, data = make_optimizer(model, 4e-3), [], data.to(device)
    window = fl.arange(length + 1, device=device)
    for at in starts:
        rows = data[at.to(device)[:, None] + window]
        loss = F.cross_entropy(model(rows[:, :-1]).flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, model


def characters():
    from common import python_reference
    text = python_reference()
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    return fl.tensor([number[c] for c in text]), len(alphabet)


def test_a_small_gpt_follows_the_cpu(cuda):
    data = fl.arange(400) ** 2 % 23
    small = {"length": 8, "batch": 2, "layers": 1, "heads": 2, "width": 16}
    np.testing.assert_allclose(curve(cuda, 4, data, 23, **small)[0], curve("cpu", 4, data, 23, **small)[0], rtol=1e-4)


@gpu
def test_char_gpt_follows_the_cpu(cuda):
    data, alphabet = characters()
    on_gpu, on_cpu = curve(cuda, 50, data, alphabet)[0], curve("cpu", 50, data, alphabet)[0]
    np.testing.assert_allclose(on_gpu, on_cpu, rtol=0, atol=1e-3)
    assert on_gpu[-1] < on_gpu[0] - 1


def test_checkpoints_travel(cuda):
    torch = pytest.importorskip("torch")
    model = network().to(cuda)
    optimizer = fl.optim.Adam(model.parameters(), 1e-2)
    x = fl.randn(8, 6)
    model(x.to(cuda)).square().mean().backward()
    optimizer.step()
    file = io.BytesIO()
    fl.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    file.seek(0)
    there = torch.load(file, map_location="cpu")  # PyTorch, which sees no GPU
    peer = torch.nn.Sequential(torch.nn.Linear(6, 16), torch.nn.LayerNorm(16), torch.nn.GELU(), torch.nn.Linear(16, 4))
    peer.load_state_dict(there["model"])
    with torch.no_grad():
        wanted = peer(torch.from_numpy(x.numpy())).numpy()
    np.testing.assert_allclose(model(x.to(cuda)).detach().cpu().numpy(), wanted, rtol=1e-4, atol=1e-5)
    file = io.BytesIO()
    torch.save(there, file)
    for place in ("cpu", cuda):
        file.seek(0)
        back = fl.load(file, map_location=place)
        again = network().to(place)
        again.load_state_dict(back["model"])
        other = fl.optim.Adam(again.parameters(), 1e-2)
        other.load_state_dict(back["optimizer"])
        for state, kept in zip(other.state.values(), optimizer.state.values()):
            assert state["exp_avg"].device.type == place
            fl.testing.assert_close(state["exp_avg"].cpu(), kept["exp_avg"].cpu(), rtol=0, atol=0)
        np.testing.assert_allclose(again(x.to(place)).detach().cpu().numpy(), wanted, rtol=1e-4, atol=1e-5)


# ---------------------------------------------------------------------------------------------------------------- errors
def failing(process):
    """A driver that answers every call with an error."""
    class Library:
        @staticmethod
        def cuGetErrorString(code, text):
            text._obj.value = b"an illegal memory access was encountered"
    machine = object.__new__(driver.Machine)
    machine.library, machine.process = Library, process
    return machine


def test_forked_processes_are_told():
    for ask in (lambda m: m.context(0), lambda m: m.check(3, "a kernel's launch")):
        with pytest.raises(RuntimeError, match="Cannot re-initialize CUDA in forked subprocess.*spawn"):
            ask(failing(-1))


def test_faults_say_where(monkeypatch):
    monkeypatch.delenv("CUDA_LAUNCH_BLOCKING", raising=False)
    message = (r"CUDA error: an illegal memory access was encountered \(a kernel's launch, in check, called at "
               r".*test_cuda_trust.py:\d+\). .*CUDA_LAUNCH_BLOCKING=1")
    with pytest.raises(RuntimeError, match=message):
        failing(os.getpid()).check(700, "a kernel's launch")


BLOCKING = """
import sys
sys.path.insert(0, {here!r})
from cuda_host import playing
import flambeau as fl
with playing():
    x = fl.ones(4, device="cuda")
    y = x.index_select(0, fl.tensor([9], device="cuda"))  # this line
    z = x + 1
    z.cpu()
"""


def test_positions_out_of_range_show_their_line():
    for blocking in (False, True):
        env = {**os.environ, "CUDA_LAUNCH_BLOCKING": str(int(blocking)), "PYTHONPATH": os.pathsep.join(sys.path)}
        done = subprocess.run([sys.executable, "-c", BLOCKING.format(here=str(HERE))], env=env, capture_output=True, text=True)
        assert "IndexError: index out of range in self" in done.stderr
        assert ('File "<string>", line 8' in done.stderr) == blocking


FAULT = """
import flambeau as fl
class Nothing:
    __cuda_array_interface__ = dict(shape=(1 << 20,), typestr="<f4", data=(0x10000, False), version=3)
x = fl.as_tensor(Nothing(), device="cuda")
y = x * 2
"""


@gpu
def test_an_asynchronous_fault_shows_its_line():
    env = {**os.environ, "CUDA_LAUNCH_BLOCKING": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run([sys.executable, "-c", FAULT], env=env, capture_output=True, text=True)
    assert "CUDA error: " in done.stderr
    assert "called at <string>:6" in done.stderr


def test_without_cupy_that_is_said(cuda):
    from flambeau.backends.cuda.numpy_words import cupy
    if cupy() is not None:
        pytest.skip("CuPy is installed")
    with pytest.raises(NotImplementedError, match=r"no CUDA kernel for 'i0' of float32 yet \(CuPy.*pip install flambeau"):
        fl.special.i0(fl.ones(3, device=cuda))


def test_large_tensors_know_their_line(cuda):
    from flambeau.backends.cuda.memory import holders, of
    keep = fl.empty(3 << 20, device=cuda)
    assert f"12.00 MiB in 1 from {__file__}:" in holders(of(0))
    del keep


# -------------------------------------------------------------------------------------------------------------- switches
def test_precision_of_products_is_one_switch():
    matmul = fl.backends.cuda.matmul
    try:
        for precision, allowed in (("high", True), ("highest", False), ("medium", True)):
            fl.set_float32_matmul_precision(precision)
            assert (matmul.allow_tf32, fl.get_float32_matmul_precision()) == (allowed, precision)
        matmul.allow_tf32 = False
        assert fl.get_float32_matmul_precision() == "highest"
        matmul.allow_tf32 = True
        assert fl.get_float32_matmul_precision() == "high"
    finally:
        fl.set_float32_matmul_precision("highest")


def test_what_there_is(cuda):
    assert fl.backends.cuda.is_built()
    assert fl.backends.cuda.is_flash_attention_available()
