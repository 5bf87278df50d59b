"""A program for several processes (test_parallel.py starts it): training in every parallel way gives the parameters that one
process gets from the whole batches, and what else parallel training promises."""

import sys
import time

import parallel_behaviour
import parallel_tensors
from parallel_behaviour import raised
from parallel_models import BATCH, batches, network, optimizer, same, share, train

import flambeau as torch
import flambeau.distributed as dist
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.fsdp import fully_shard
from flambeau.distributed.optim import ZeroRedundancyOptimizer
from flambeau.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe
from flambeau.distributed.pipelining.schedules import get_schedule_class
from flambeau.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, parallelize_module
from flambeau.nn import functional as F
from flambeau.nn.parallel import DistributedDataParallel

PLAN = {"[12].up": ColwiseParallel(), "[12].down": RowwiseParallel()}
SINGLE, DOUBLE = torch.float32, torch.float64


def data_parallel(rank, world):
    cases = [{}, {"gradient_as_bucket_view": True}, {"bucket_cap_mb": 0.0005}, {"find_unused_parameters": True},
             {"static_graph": True}][:1 if world == 4 else None]  # the others differ in nothing that four processes would show
    for dtype in (DOUBLE, SINGLE):
        for options in cases if dtype is DOUBLE else cases[:1]:
            model = network(dtype)
            if rank:
                with torch.no_grad():
                    for p in model.parameters():
                        p.add_(1)  # everybody starts from rank 0's
            wrapped = DistributedDataParallel(model, **options)
            train(wrapped, optimizer(wrapped.parameters()), dtype, rank, world)
            same(model.named_parameters(), dtype)


def zero_redundancy(rank, world):
    for dtype, views in ((DOUBLE, True), (SINGLE, False)):
        model = network(dtype)
        wrapped = DistributedDataParallel(model)
        made = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.AdamW, lr=1e-2, parameters_as_bucket_view=views)
        train(wrapped, made, dtype, rank, world)
        same(model.named_parameters(), dtype)
        if world > 1:
            assert len(made.optim.state) < len(list(model.parameters()))


def sharded(model, mesh=None, **options):
    for block in (m for m in model if hasattr(m, "up")):
        fully_shard(block, mesh=mesh, **options)
    return fully_shard(model, mesh=mesh, **options)


def fully_sharded(rank, world):
    cases = [(DOUBLE, {}), (SINGLE, {"reshard_after_forward": False}), (DOUBLE, {"reshard_after_forward": True})]
    for dtype, options in cases[:2 if world == 4 else None]:
        model = sharded(network(dtype), **options)
        train(model, optimizer(model.parameters()), dtype, rank, world)
        same(model.state_dict(), dtype)


def tensor_parallel(rank, world):
    mesh = init_device_mesh("cpu", (world,))
    for dtype in (DOUBLE, SINGLE):
        model = parallelize_module(network(dtype), mesh, PLAN)
        train(model, optimizer(model.parameters()), dtype)
        same(model.named_parameters(), dtype)


def sequence_parallel(rank, world):
    """Norms on pieces of the first dimension, which take the place of a sequence here."""
    mesh = init_device_mesh("cpu", (world,))
    plan = {"[12].norm": SequenceParallel(sequence_dim=0, use_local_output=False), "[12].up": ColwiseParallel(),
            "[12].down": RowwiseParallel(), "1": None, "2": None}
    model = network(DOUBLE)
    from flambeau.distributed.tensor import DTensor, Replicate
    for block in (model[1], model[2]):
        block.norm.register_forward_pre_hook(lambda m, x: (DTensor.from_local(x[0], mesh, [Replicate()]),), prepend=True)
    parallelize_module(model, mesh, {k: v for k, v in plan.items() if v is not None})
    train(model, optimizer(model.parameters()), DOUBLE)
    same(model.named_parameters(), DOUBLE)


def _pipelined(kind, pipe, part, dp=(0, 1)):
    """Trains the layers of this process; pipe: (mesh dimension's group, place in it, how many)."""
    group, place, count = pipe
    made = optimizer(part.parameters())
    schedule = kind(PipelineStage(part, place, count, "cpu", group=group), 4, loss_fn=F.mse_loss)
    for x, y in zip(*batches(DOUBLE)):
        made.zero_grad()
        x, y = share(x, *dp), share(y, *dp)
        schedule.step(*[x] if place == 0 else [], target=y if place == count - 1 else None)
        made.step()


def _layers(model, place, count):
    """The layers of a stage, and their parameters by the names that they have in the model."""
    size = len(model) // count
    part = model[place * size:(place + 1) * size]
    return part, lambda: dict(part.named_parameters())


def pipeline_parallel(rank, world):
    for kind in (ScheduleGPipe, Schedule1F1B):
        part, named = _layers(network(DOUBLE), rank, world)
        _pipelined(kind, (None, rank, world), part)
        same(named(), DOUBLE)
    for name in ("Interleaved1F1B", "LoopedBFS"):
        _several_stages(get_schedule_class(name), rank, world)


def _several_stages(kind, rank, world):
    """Four stages on fewer processes: each has every second, or all of them."""
    model, places = network(DOUBLE), range(rank, 4, world)
    parts = [_layers(model, place, 4)[0] for place in places]
    made = optimizer([p for part in parts for p in part.parameters()])
    stages = [PipelineStage(part, place, 4, "cpu") for place, part in zip(places, parts)]
    schedule = kind(stages, 4, loss_fn=F.mse_loss)
    raised(lambda: ScheduleGPipe(stages[0], 4), ValueError, "one stage per process") if world < 4 else None
    raised(lambda: kind(stages[::-1], 4), ValueError, "in order") if world < 4 else None
    for x, y in zip(*batches(DOUBLE)):
        made.zero_grad()
        losses = []
        schedule.step(*[x] if rank == 0 else [], target=y if rank == world - 1 else None, losses=losses)
        made.step()
        assert len(losses) == (4 if rank == world - 1 else 0)
    same([(name, p) for part in parts for name, p in part.named_parameters()], DOUBLE)
    x = batches(DOUBLE)[0][0]
    out = schedule.eval(*[x] if rank == 0 else [], target=batches(DOUBLE)[1][0] if rank == world - 1 else None)
    assert (out is None) == (rank != world - 1) and (out is None or out.shape[0] == len(x))


def two_by_two(rank, world):
    """Two ways at once on a mesh of 2 x 2 processes."""
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("outer", "inner"))
    outer, inner = mesh.get_local_rank("outer"), mesh.get_local_rank("inner")
    pipe = mesh.get_group("inner"), inner, 2
    model = sharded(network(DOUBLE), mesh)  # copies of pieces
    train(model, optimizer(model.parameters()), DOUBLE, rank, world)
    same(model.state_dict(), DOUBLE)
    model = sharded(parallelize_module(network(DOUBLE), mesh["inner"], PLAN), mesh["outer"])
    train(model, optimizer(model.parameters()), DOUBLE, outer, 2)
    same(model.state_dict(), DOUBLE)
    part, named = _layers(network(DOUBLE), inner, 2)
    _pipelined(ScheduleGPipe, pipe, DistributedDataParallel(part, process_group=mesh.get_group("outer")), (outer, 2))
    same(named(), DOUBLE)
    part, named = _layers(network(DOUBLE), inner, 2)
    _pipelined(Schedule1F1B, pipe, fully_shard(part, mesh=mesh["outer"]), (outer, 2))
    same(named(), DOUBLE)
    part, named = _layers(network(DOUBLE), inner, 2)
    block = next(m for m in part if hasattr(m, "up"))
    parallelize_module(block, mesh["outer"], {"up": ColwiseParallel(), "down": RowwiseParallel()})
    _pipelined(Schedule1F1B, pipe, part)
    same(named(), DOUBLE)
    assert BATCH % world == 0


def compiled(rank, world):
    """flambeau.compile of whole steps, with the exchange inside of them."""
    mesh = init_device_mesh("cpu", (world,))
    for kind in ("data", "sharded", "tensor"):
        model = network(DOUBLE)
        run = {"data": DistributedDataParallel, "sharded": sharded,
               "tensor": lambda m: parallelize_module(m, mesh, PLAN)}[kind](model)
        rule, part = optimizer(run.parameters()), (rank, world) if kind != "tensor" else (0, 1)

        @torch.compile
        def step(x, y, run=run, rule=rule):
            rule.zero_grad()
            F.mse_loss(run(x), y).backward()
            rule.step()

        for x, y in zip(*[v[:6] for v in batches(DOUBLE)]):
            step(share(x, *part), share(y, *part))
        same(model.state_dict(), DOUBLE, 6)


compiled.worlds = (2,)
CHECKS = [data_parallel, zero_redundancy, fully_sharded, tensor_parallel, sequence_parallel, pipeline_parallel,
          compiled]


def main():
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.set_num_threads(1)
    for check in [*CHECKS, *[two_by_two] * (world == 4), *parallel_tensors.CHECKS, *parallel_behaviour.CHECKS]:
        if sys.argv[1:] and check.__name__ not in sys.argv[1:]:
            continue
        worlds = getattr(check, "worlds", None)
        if worlds is None or world in worlds:
            start = time.perf_counter()
            check(rank, world)
            if rank == 0:
                print(f"{check.__name__} holds ({time.perf_counter() - start:.1f} s)", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
