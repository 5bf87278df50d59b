"""NCCL in a world of one process: every collective, streams, and training on it. On a machine with an NVIDIA GPU it is NCCL
itself (`FLAMBEAU_NCCL=real` insists on it); elsewhere the host plays the GPU, and nccl_alone.py one process' part of NCCL."""

from __future__ import annotations

import contextlib
import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cuda_host import HostMachine, needs_gxx

import flambeau as fl
import flambeau.distributed as dist
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.backends.cuda import driver
from flambeau.distributed import nccl
from flambeau.nn.parallel import DistributedDataParallel as DDP

pytestmark = needs_gxx
HERE = Path(__file__).parent


def real_nccl() -> bool:
    with contextlib.suppress(driver.Unavailable):
        return not isinstance(driver.machine(), HostMachine) and nccl.available()
    return False


needs_nccl = [pytest.mark.gpu, pytest.mark.skipif(not real_nccl(), reason="needs an NVIDIA GPU and NCCL")]


def gpu(function):
    for mark in needs_nccl:
        function = mark(function)
    return function


@pytest.fixture(scope="module")
def world(cuda):
    before = nccl.library
    if not real_nccl():
        assert os.environ.get("FLAMBEAU_NCCL") != "real"
        import nccl_alone
        nccl.library = lambda: nccl_alone
    dist.init_process_group("nccl", rank=0, world_size=1)
    yield cuda
    dist.destroy_process_group()
    nccl.library = before
    gc.collect()  # while there is a device that takes memory back


def values(dtype: str, device: str, contiguous: bool = True):
    made = (fl.arange(6) % 4 + 1).reshape(2, 3)
    made = fl.complex(made.float(), -made.float()) if dtype.startswith("complex") else made
    made = made.to(getattr(fl, dtype)).to(device)
    return made if contiguous else made.t().contiguous().t()


def same(x, expected) -> None:
    assert x.device.type == "cuda" and x.dtype is expected.dtype and x.shape == expected.shape
    assert x.cpu().tolist() == expected.cpu().tolist()


SUMMED = ("float32", "float64", "float16", "bfloat16", "int8", "uint8", "int32", "int64", "bool", "complex64", "complex128")
MOVED = (*SUMMED, "int16")


# ---------------------------------------------------------------------------------------------------------- collectives
@pytest.mark.parametrize("dtype", SUMMED)
def test_reductions(world, dtype):
    for i, op in enumerate(("SUM", "AVG", "PRODUCT", "MIN", "MAX")):
        if (dtype.startswith("complex") and i > 1) or (dtype == "bool" and op == "AVG"):
            continue
        how, expected = getattr(dist.ReduceOp, op), values(dtype, world)
        for contiguous in (True, False):
            x, y, part, whole = values(dtype, world, contiguous), values(dtype, world, contiguous), *(
                fl.zeros_like(expected) for _ in range(2))
            works = [dist.all_reduce(x, how, async_op=True), dist.reduce(y, 0, how, async_op=True),
                     dist.reduce_scatter(part, [values(dtype, world, contiguous)], how, async_op=True),
                     dist.reduce_scatter_tensor(whole, values(dtype, world), how, async_op=True)]
            assert all(work.wait() and work.exception() is None for work in works)
            fl.cuda.synchronize()
            assert all(work.is_completed() and work.is_success() for work in works)
            for made in (x, y, part, whole):
                same(made, expected)


@pytest.mark.parametrize("dtype", MOVED)
@pytest.mark.parametrize("async_op", [False, True])
def test_movements(world, dtype, async_op):
    x = values(dtype, world)
    for contiguous in (True, False):
        given, works = values(dtype, world, contiguous), []
        blank = [fl.zeros_like(given) for _ in range(6)]
        works.append(dist.broadcast(given, 0, async_op=async_op))
        works.append(dist.all_gather([blank[0]], given, async_op=async_op))
        works.append(dist.all_gather_into_tensor(blank[1], given, async_op=async_op))
        works.append(dist.gather(given, [blank[2]], dst=0, async_op=async_op))
        works.append(dist.scatter(blank[3], [given], src=0, async_op=async_op))
        works.append(dist.all_to_all([blank[4]], [given], async_op=async_op))
        works.append(dist.all_to_all_single(blank[5], given, async_op=async_op))
        for work in works:
            assert (work is not None) == async_op
            work is None or work.wait()
        for made in (given, *blank):
            same(made, x)


def test_factors_objects_and_barriers(world):
    x = fl.ones(3, device=world)
    dist.all_reduce(x, dist._make_nccl_premul_sum(0.5))
    dist.barrier()
    dist.barrier(device_ids=[0])
    assert x.tolist() == [0.5] * 3
    gathered, got = [None], [None]
    dist.all_gather_object(gathered, {"a": 1})
    dist.scatter_object_list(got, [(2, "b")])
    said = ["c", fl.ones(2)]
    dist.broadcast_object_list(said, 0)
    dist.broadcast_object_list(said, 0, device=fl.device(world))
    collected = [None]
    dist.gather_object(3, collected, 0)
    assert (gathered, got, said[0], collected) == ([{"a": 1}], [(2, "b")], "c", [3])


def test_coalescing_and_futures(world):
    a, b = fl.ones(4, device=world), fl.full((2,), 3.0, device=world)
    with dist._coalescing_manager(async_ops=True) as manager:
        dist.all_reduce(a)
        dist.all_reduce(b)
    manager.wait()
    dist.all_reduce_coalesced([a, b])
    out = [[fl.zeros(4, device=world), fl.zeros(2, device=world)]]
    dist.all_gather_coalesced(out, [a, b])
    future = dist.all_reduce(a, async_op=True).get_future()
    then = future.then(lambda done: done.value()[0] * 2)
    assert then.wait().tolist() == [2.0] * 4 and out[0][0].tolist() == [1.0] * 4 and b.tolist() == [3.0] * 2


@pytest.mark.parametrize("call,error,words", [
    ("dist.all_reduce(fl.ones(2))", RuntimeError, "No backend type associated with device type cpu"),
    ("dist.all_reduce(fl.ones(2, dtype=fl.int16, device='cuda'))", NotImplementedError, "NCCL has no torch.int16"),
    ("dist.all_reduce(fl.ones(2, dtype=fl.int32, device='cuda'), dist.ReduceOp.BAND)", NotImplementedError, "NCCL has no"),
    ("dist.send(fl.ones(2, device='cuda'), 0)", ValueError, "should not be the same"),
    ("dist.recv(fl.ones(2, device='cuda'), 0)", ValueError, "should not be the same"),
    ("dist.batch_isend_irecv([dist.P2POp(dist.isend, fl.ones(2, device='cuda'), 0)])", ValueError, "should not be the same"),
    ("dist.all_gather([fl.ones(2)], fl.ones(2, device='cuda'))", RuntimeError, "No backend type associated with device type"),
    ("dist.broadcast(fl.ones(2, device='cuda'), 1)", RuntimeError, "invalid root rank"),
])
def test_wrong_calls(world, call, error, words):
    with pytest.raises(error, match=words):
        eval(call)
    test_factors_objects_and_barriers(world)  # and the group is usable


# -------------------------------------------------------------------------------------------------------------- streams
def test_collectives_come_after_what_was_asked_for_before_and_before_what_is_asked_for_after(world):
    size = 2048 if real_nccl() else 16
    a = fl.eye(size, device=world) * 0.5
    for stream in (None, fl.cuda.Stream(), fl.cuda.Stream()):
        with fl.cuda.stream(stream):
            x = fl.ones(size, size, device=world)
            for _ in range(8):  # the device is busy when the collective is asked for
                x = x @ a * 2
            gathered = fl.zeros_like(x)
            work = dist.all_gather_into_tensor(gathered, x, async_op=True)
            busy = x @ a
            work.wait()
            x.zero_()
            after = gathered * 2
        fl.cuda.synchronize()
        assert (after == 2).all().item() and (busy == 0.5).all().item()


def test_memory_of_collectives_that_nobody_waits_for_is_not_given_away_early(world):
    size = 1 << (22 if real_nccl() else 6)
    kept = []
    for i in range(20):
        given, out = fl.full((size,), float(i), device=world), fl.empty(size, device=world)
        dist.all_gather_into_tensor(out, given, async_op=True)
        del given
        fl.full((size,), -1.0, device=world)  # would take its place
        kept.append(out)
    fl.cuda.synchronize()
    assert [out[-1].item() for out in kept] == [float(i) for i in range(20)]


def test_compiled_functions_repeat_collectives(world):
    """What NCCL writes no kernel of ours does: a program that repeats kernels alone would give the first call's numbers."""
    def gathered(x):
        out = fl.empty_like(x)
        dist.all_gather_into_tensor(out, x * 2)
        return out + 1

    compiled = fl.compile(gathered)
    for i in range(5):
        x = fl.full((4,), float(i), device=world)
        assert compiled(x).tolist() == [2.0 * i + 1] * 4


@gpu
def test_a_graph_repeats_collectives(world):
    x, out = fl.ones(4, device=world), fl.zeros(4, device=world)
    dist.all_gather_into_tensor(out, x)
    fl.cuda.synchronize()
    graph = fl.cuda.CUDAGraph()
    with fl.cuda.graph(graph):
        dist.all_gather_into_tensor(out, x * 3)
        after = out + 1
    for i in range(3):
        x.fill_(float(i))
        graph.replay()
        assert after.tolist() == [3.0 * i + 1] * 4


# ------------------------------------------------------------------------------------------------------------- training
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        fl.manual_seed(0)
        self.first, self.norm, self.last, self.spare = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 4), nn.Linear(4, 4)

    def forward(self, x, spare=False):
        made = self.last(F.relu(self.norm(self.first(x))))
        return self.spare(made) if spare else made


def trained(device, wrapped=lambda model: model, optimizer=lambda p: fl.optim.SGD(p, 0.1, momentum=0.9), steps=20,
            compiled=False, spare=lambda step: False):
    model = wrapped(Net().to(device))
    update = optimizer(model.parameters())
    generator = fl.Generator().manual_seed(1)
    data = [(fl.randn(8, 6, generator=generator), fl.randint(0, 4, (8,), generator=generator)) for _ in range(steps)]

    def step(x, y, spare):
        loss = F.cross_entropy(model(x, spare), y)
        update.zero_grad()
        loss.backward()
        update.step()
        return loss

    run = fl.compile(step) if compiled else step
    losses = [run(x.to(device), y.to(device), spare(i)).item() for i, (x, y) in enumerate(data)]
    return losses, [p.detach() for p in model.parameters()]


def agrees(found, expected, tolerance=1e-6):
    for x, y in zip(found[1], expected[1]):
        x = x.full_tensor() if hasattr(x, "full_tensor") else x
        assert fl.allclose(x.cpu(), y.cpu(), rtol=tolerance, atol=tolerance)
    assert max(abs(a - b) for a, b in zip(found[0], expected[0])) <= tolerance


def turns(step):
    return step % 3 == 1


def always(step):
    return True


def never(step):
    return False


@pytest.mark.parametrize("options,spare", [
    ({"find_unused_parameters": True}, turns), ({}, always), ({"gradient_as_bucket_view": True}, always),
    ({"static_graph": True}, never), ({"bucket_cap_mb": 1e-4}, always)], ids=lambda v: getattr(v, "__name__", str(v)))
def test_data_parallel(world, options, spare):
    agrees(trained(world, lambda m: DDP(m, device_ids=[0], **options), spare=spare), trained(world, spare=spare))


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name,tolerance", [
    ("allreduce_hook", 1e-6), ("fp16_compress_hook", 2e-2), ("bf16_compress_hook", 2e-2), ("builtin", 2e-2),
    pytest.param("powerSGD_hook", None, marks=needs_nccl)])
def test_communication_hooks(world, name, tolerance, compiled):
    from flambeau.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook

    def wrapped(model):
        made = DDP(model)
        if name == "builtin":
            made._register_builtin_comm_hook(dist.BuiltinCommHookType.FP16_COMPRESS)
        elif name == "powerSGD_hook":
            made.register_comm_hook(powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=3), powerSGD_hook.powerSGD_hook)
        else:
            made.register_comm_hook(None, getattr(default_hooks, name))
        return made

    found, expected = (trained(world, w, compiled=compiled, spare=lambda step: True, steps=10) for w in (wrapped, lambda m: m))
    if tolerance is None:
        assert all(fl.isfinite(p).all().item() for p in found[1])
    else:
        agrees(found, expected, tolerance)


def test_sharded_training(world):
    from flambeau.distributed.fsdp import fully_shard

    def sharded(model):
        fully_shard(model.first)
        return fully_shard(model)

    agrees(trained(world, sharded, spare=lambda step: True), trained(world, spare=lambda step: True))


def test_sharded_optimizer_and_synchronized_norms(world):
    from flambeau.distributed.optim import ZeroRedundancyOptimizer
    agrees(trained(world, lambda m: DDP(nn.SyncBatchNorm.convert_sync_batchnorm(m)),
                   lambda p: ZeroRedundancyOptimizer(p, fl.optim.Adam, lr=0.01), spare=lambda step: True),
           trained(world, optimizer=lambda p: fl.optim.Adam(p, lr=0.01), spare=lambda step: True), 1e-5)


def test_compiled_data_parallel_steps(world):
    agrees(trained(world, DDP, compiled=True, spare=lambda step: True), trained(world, spare=lambda step: True), 1e-5)


def test_accumulation_and_uneven_inputs(world):
    model, alone = DDP(Net().to(world), find_unused_parameters=True), Net().to(world)
    x = fl.randn(8, 6).to(world)
    with model.no_sync():
        model(x).sum().backward()
    with model.join():
        for _ in range(2):
            model(x).square().sum().backward()
    alone(x).sum().backward()
    for _ in range(2):
        alone(x).square().sum().backward()
    for p, q in zip(model.parameters(), alone.parameters()):
        assert (p.grad is None) == (q.grad is None) and (p.grad is None or fl.allclose(p.grad, q.grad, rtol=1e-5, atol=1e-4))


def test_tensors_in_pieces_and_checkpoints(world, tmp_path):
    import flambeau.distributed.checkpoint as dcp
    from flambeau.distributed.device_mesh import init_device_mesh
    from flambeau.distributed.tensor import Replicate, Shard, distribute_tensor
    mesh = init_device_mesh("cuda", (1,))
    x = fl.randn(4, 6).to(world)
    piece = distribute_tensor(x, mesh, [Shard(0)])
    assert fl.equal((piece @ piece.t()).redistribute(placements=[Replicate()]).to_local(), x @ x.t())
    dcp.save({"x": piece}, checkpoint_id=tmp_path / "saved")
    read = {"x": distribute_tensor(fl.zeros(4, 6, device=world), mesh, [Shard(0)])}
    dcp.load(read, checkpoint_id=tmp_path / "saved")
    same(read["x"].full_tensor(), x)


# --------------------------------------------------------------------------------------------------------- two processes
TWO = """
import sys
import flambeau as torch
torch.distributed.init_process_group("nccl")
try:
    torch.distributed.all_reduce(torch.ones(2, device="cuda"))
except RuntimeError as error:
    print(type(error).__name__, error, flush=True)
torch.distributed.destroy_process_group()
"""


@gpu
def test_two_processes_on_one_gpu_are_refused_in_words(world, tmp_path):
    import socket
    (tmp_path / "two.py").write_text(TWO)
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    told = {**os.environ, "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": str(port),
            "PYTHONPATH": str(HERE.parent)}
    running = [subprocess.Popen([sys.executable, str(tmp_path / "two.py")], env={**told, "RANK": str(rank)}, text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT) for rank in (0, 1)]
    for process in running:
        said = process.communicate(timeout=100)[0]
        assert "DistBackendError" in said and "ranks [0, 1] use the same device" in said and process.returncode == 0, said
