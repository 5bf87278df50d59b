"""Checks of what parallel training promises besides its results: joining, hooks, errors by rank, checkpoints."""

import errno
import os
import tempfile
import warnings
import weakref

from parallel_models import batches, network, optimizer, reference, same, share, train, whole

import flambeau as torch
import flambeau.distributed as dist
import flambeau.distributed.checkpoint as dcp
from flambeau import nn
from flambeau.autograd.graph import saved_tensors_hooks
from flambeau.distributed.algorithms.ddp_comm_hooks import DDPCommHookType, default_hooks, powerSGD_hook, register_ddp_comm_hook
from flambeau.distributed.algorithms.join import Join
from flambeau.distributed.checkpoint import files, format_utils
from flambeau.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from flambeau.distributed.device_mesh import init_device_mesh
from flambeau.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from flambeau.distributed.optim import ZeroRedundancyOptimizer
from flambeau.distributed.tensor import distribute_tensor
from flambeau.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from flambeau.nn import functional as F
from flambeau.nn.parallel import DistributedDataParallel
from flambeau.utils.checkpoint import checkpoint

DOUBLE = torch.float64


def raised(function, kind, *words):
    """That a call raises an error with all of the words."""
    try:
        function()
    except kind as error:
        assert all(w in str(error) for w in words), str(error)
    else:
        raise AssertionError(f"no {kind.__name__} was raised")


def steps_without_exchange(rank, world):
    """Gradients of two halves of a batch, of which only the second is exchanged, are those of the batch."""
    for fsdp in (False, True):
        model = network(DOUBLE)
        made = fully_shard(model) if fsdp else DistributedDataParallel(model)
        rule = optimizer(made.parameters())
        for x, y in zip(*batches(DOUBLE)):
            rule.zero_grad()
            x, y = share(x, rank, world), share(y, rank, world)
            for half in (0, 1):
                part = slice(half * len(x) // 2, (half + 1) * len(x) // 2)
                if fsdp:
                    made.set_requires_gradient_sync(bool(half))
                    (F.mse_loss(made(x[part]), y[part]) / 2).backward()
                elif half:
                    (F.mse_loss(made(x[part]), y[part]) / 2).backward()
                else:
                    with made.no_sync():
                        (F.mse_loss(made(x[part]), y[part]) / 2).backward()
            rule.step()
        same(model.state_dict(), DOUBLE)


def uneven_inputs(rank, world):
    """join(): processes that are through take part with zeros; in the end all have one model."""
    xs, ys = batches(DOUBLE)
    counts = [3 + 2 * r for r in range(world)]
    for initial in (True, False):
        model, alone = network(DOUBLE), network(DOUBLE)
        wrapped = DistributedDataParallel(model)
        zero = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.SGD, lr=0.1)
        with Join([wrapped, zero], divide_by_initial_world_size=initial):
            for i in range(counts[rank]):
                zero.zero_grad()
                F.mse_loss(wrapped(xs[i][rank:rank + 1]), ys[i][rank:rank + 1]).backward()
                zero.step()
        rule = torch.optim.SGD(alone.parameters(), lr=0.1)
        for i in range(max(counts)):
            active = [r for r in range(world) if i < counts[r]]
            rule.zero_grad()
            losses = [F.mse_loss(alone(xs[i][r:r + 1]), ys[i][r:r + 1]) for r in active]
            (sum(losses) / (world if initial else len(active))).backward()
            rule.step()
        for a, b in zip(model.parameters(), alone.parameters()):
            assert (a - b).abs().max().item() < 1e-12


uneven_inputs.worlds = (2,)


def communication_hooks(rank, world):
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=8, start_powerSGD_iter=2, min_compression_rate=0.1)
    cases = [(None, default_hooks.allreduce_hook, 1e-12), (None, default_hooks.fp16_compress_hook, 1e-3),
             (None, default_hooks.bf16_compress_hook, 5e-3), (state, powerSGD_hook.powerSGD_hook, 1e-10),
             (None, default_hooks.fp16_compress_wrapper(default_hooks.allreduce_hook), 1e-3)]
    for given, hook, tolerance in cases:
        model = network(DOUBLE)
        wrapped = DistributedDataParallel(model)
        wrapped.register_comm_hook(given, hook)
        train(wrapped, optimizer(wrapped.parameters()), DOUBLE, rank, world, steps=5)
        same(model.named_parameters(), DOUBLE, 5, tolerance)
    raised(lambda: wrapped.register_comm_hook(None, default_hooks.allreduce_hook), RuntimeError, "only be called once")
    seen = []
    wrapped = DistributedDataParallel(network(DOUBLE), bucket_cap_mb=0.0005)

    def note(_, bucket):
        seen.append((bucket.index(), bucket.is_last(), len(bucket.parameters()), bucket.buffer().numel()))
        return default_hooks.allreduce_hook(None, bucket)

    wrapped.register_comm_hook(None, note)
    train(wrapped, optimizer(wrapped.parameters()), DOUBLE, rank, world, steps=1)
    assert [s[0] for s in seen] == list(range(len(seen))) and [s[1] for s in seen] == [False] * (len(seen) - 1) + [True]
    assert sum(s[3] for s in seen) == sum(p.numel() for p in wrapped.parameters())
    wrapped = DistributedDataParallel(network(DOUBLE))
    register_ddp_comm_hook(DDPCommHookType.POWER_SGD, wrapped)
    train(wrapped, optimizer(wrapped.parameters()), DOUBLE, rank, world, steps=1)


communication_hooks.worlds = (2,)


class Branches(nn.Module):
    """Uses one layer or another."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.third = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 3)

    def forward(self, x, which):
        return (self.first if which == 0 else self.second)(x)


def unused_parameters(rank, world):
    x = torch.ones(2, 3)
    wrapped = DistributedDataParallel(Branches(), find_unused_parameters=True)
    wrapped(x, rank % 2).sum().backward()
    for layer, users in ((wrapped.module.first, (world + 1) // 2), (wrapped.module.second, world // 2)):
        assert layer.bias.grad.tolist() == [2.0 * users / world] * 3
    assert wrapped.module.third.weight.grad is None  # of no process
    wrapped(x, 0).sum().backward()
    wrapped = DistributedDataParallel(Branches())
    wrapped(x, 0).sum().backward()
    raised(lambda: wrapped(x, 0), RuntimeError, "Expected to have finished reduction in the prior iteration",
           f"for rank {rank}: 2 3 4 5", "second.weight")
    raised(wrapped._set_static_graph, RuntimeError, "should be called before training loop starts")
    wrapped = DistributedDataParallel(Branches(), find_unused_parameters=True)
    with wrapped.no_sync():
        wrapped(x, rank % 2).sum().backward()
    wrapped(x, 1).sum().backward()  # what only the step without an exchange used is exchanged with it, on all processes
    users = (world + 1) // 2
    assert wrapped.module.first.bias.grad.tolist() == [2.0 * users / world] * 3
    assert wrapped.module.second.bias.grad.tolist() == [2.0 + 2.0 * (world - users) / world] * 3
    for pieces in (fully_shard(Branches()), fully_shard(Branches(), reshard_after_forward=False)):
        pieces(x, rank % 2).sum().backward()
        for layer, count in ((pieces.first, users), (pieces.second, world - users)):
            assert layer.bias.grad.full_tensor().tolist() == [2.0 * count / world] * 3
        assert pieces.third.weight.grad is None and pieces.third.bias.grad is None  # zeros would let weights decay


unused_parameters.worlds = (2,)


def checkpointing_and_saved_tensor_hooks(rank, world):
    class Checkpointed(nn.Module):
        def __init__(self, reentrant):
            super().__init__()
            self.inner, self.reentrant = network(DOUBLE), reentrant

        def forward(self, x):
            for layer in self.inner:
                x = checkpoint(layer, x, use_reentrant=self.reentrant)
            return x

    for reentrant, options in ((False, {}), (True, {"static_graph": True}), (False, {"gradient_as_bucket_view": True})):
        model = Checkpointed(reentrant)
        wrapped = DistributedDataParallel(model, **options)
        # a reentrant checkpoint needs an input that requires grad
        train(lambda x: wrapped(x.clone().requires_grad_()), optimizer(wrapped.parameters()), DOUBLE, rank, world, steps=6)
        same(model.inner.named_parameters(), DOUBLE, 6)
    wrapped = DistributedDataParallel(network(DOUBLE))
    with saved_tensors_hooks(lambda t: t.clone(), lambda t: t):
        train(wrapped, optimizer(wrapped.parameters()), DOUBLE, rank, world, steps=6)
    same(wrapped.module.named_parameters(), DOUBLE, 6)
    model = Checkpointed(False)
    for layer in model.inner:
        fully_shard(layer)
    fully_shard(model)
    train(model, optimizer(model.parameters()), DOUBLE, rank, world, steps=6)
    same({k.removeprefix("inner."): v for k, v in model.state_dict().items()}, DOUBLE, 6)


checkpointing_and_saved_tensor_hooks.worlds = (2,)


def batch_norm_over_all_processes(rank, world):
    def made():
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(6, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 4)).double()

    alone = made()
    train(alone, torch.optim.SGD(alone.parameters(), lr=0.1), DOUBLE)
    model = nn.SyncBatchNorm.convert_sync_batchnorm(made())
    wrapped = DistributedDataParallel(model)
    train(wrapped, torch.optim.SGD(wrapped.parameters(), lr=0.1), DOUBLE, rank, world)
    for name, value in alone.state_dict().items():
        assert (model.state_dict()[name] - value).abs().max().item() < 1e-12, name
    plain = DistributedDataParallel(made())  # its buffers are rank 0's
    with torch.no_grad():
        plain.module[1].running_mean.fill_(rank)
    plain(share(batches(DOUBLE)[0][0], rank, world))
    plain(share(batches(DOUBLE)[0][0], rank, world))
    found = [None] * world
    dist.all_gather_object(found, plain.state_dict()["module.1.running_mean"].mean().item())
    assert max(found) < 1


def different_models_are_refused(rank, world):
    raised(lambda: DistributedDataParallel(nn.Linear(3, 2 + (rank == 1))), RuntimeError, "appears not to match sizes")
    raised(lambda: DistributedDataParallel(nn.Sequential(*[nn.Linear(2, 2) for _ in range(1 + (rank == 1))])), RuntimeError,
           "DDP expects same model across all ranks", f"Rank {rank} has")
    raised(lambda: DistributedDataParallel(nn.Linear(1, 1).requires_grad_(False)), RuntimeError, "is not needed when")
    raised(lambda: DistributedDataParallel(nn.Linear(1, 1), device_ids=[0]), ValueError, "device_ids")
    raised(lambda: fully_shard(nn.ModuleList([nn.Linear(1, 1)])), ValueError, "containers that do not implement forward")
    raised(lambda: dist.device_mesh.init_device_mesh("cpu", (world,), mesh_dim_names=("a", "b")), RuntimeError,
           "mesh_shape and mesh_dim_names should have same length! Found")
    dist.barrier(device_ids=[0])  # as programs for GPUs call it


different_models_are_refused.worlds = (2,)


def gradients_are_clipped_alike(rank, world):
    alone, model = network(DOUBLE), network(DOUBLE)
    fully_shard(model)
    x, y = (v[0] for v in batches(DOUBLE))
    F.mse_loss(alone(x), y).backward()
    F.mse_loss(model(share(x, rank, world)), share(y, rank, world)).backward()
    norms = [whole(nn.utils.clip_grad_norm_(m.parameters(), 0.1)).item() for m in (alone, model)]
    assert abs(norms[0] - norms[1]) < 1e-12
    for p, q in zip(alone.parameters(), model.parameters()):
        assert (p.grad - q.grad.full_tensor()).abs().max().item() < 1e-12


def whole_parameters_are_given_back(rank, world):
    """Between the passes nobody holds a module's whole parameters, neither it nor the graph."""
    model = network(DOUBLE)
    seen = []
    for block in (model[1], model[2]):
        fully_shard(block)
        for layer in (block.up, block.down):
            layer.register_forward_hook(lambda m, args, out: seen.append(weakref.ref(m.weight._array)))
    fully_shard(model)
    loss = model(batches(DOUBLE)[0][0]).sum()
    assert len(seen) == 4 and all(found() is None for found in seen)
    loss.backward()
    assert all(p.grad is not None for p in model.parameters())


def evaluation_between_steps(rank, world):
    """A forward pass that no backward pass follows does not leave old parameters behind."""
    for mode in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        model = network(DOUBLE)
        fully_shard(model[1])
        fully_shard(model)
        rule = optimizer(model.parameters())
        for x, y in zip(*[v[:5] for v in batches(DOUBLE)]):
            rule.zero_grad()
            F.mse_loss(model(share(x, rank, world)), share(y, rank, world)).backward()
            with mode():
                model(x)
            rule.step()
        same(model.state_dict(), DOUBLE, 5)
    plan = {"1.up": ColwiseParallel(), "1.down": RowwiseParallel()}
    spread = parallelize_module(network(DOUBLE), init_device_mesh("cpu", (world,)), plan)
    wrapped = DistributedDataParallel(network(DOUBLE))
    x = batches(DOUBLE)[0][0]
    with torch.inference_mode():
        assert (spread(x) - network(DOUBLE)(x)).abs().max().item() < 1e-12
        assert torch.equal(wrapped.eval()(x), network(DOUBLE)(x))


def an_infinite_piece_stops_all(rank, world):
    """GradScaler: one process's gradient is infinite, and nobody steps."""
    model = fully_shard(nn.Linear(6, 4))
    rule, scaler = torch.optim.SGD(model.parameters(), lr=0.1), torch.amp.GradScaler("cpu", init_scale=4.0)
    before = model.state_dict()["weight"].full_tensor().clone()
    for wrong in (True, False):
        rule.zero_grad()
        scaler.scale(model(torch.ones(2, 6)).sum()).backward()
        if wrong and rank == world - 1:
            model.weight.grad.to_local()[0, 0] = float("inf")
        scaler.step(rule)
        scaler.update()
        after = model.state_dict()["weight"].full_tensor()
        assert torch.equal(before, after) == wrong
    assert scaler.get_scale() == 2.0


def precision_and_meta_tensors(rank, world):
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32, output_dtype=torch.float32)
    model = fully_shard(network(torch.float32), mp_policy=policy)
    seen = []
    model[0].register_forward_hook(lambda m, args, out: seen.append((args[0].dtype, m.weight.dtype, out.dtype)))
    out = model(torch.ones(2, 6))
    out.sum().backward()
    assert out.dtype is torch.float32 and seen == [(torch.bfloat16,) * 3] and model[0].weight.grad.dtype is torch.float32
    with torch.device("meta"):
        model = network(DOUBLE)
    fully_shard(model)
    model.to_empty(device="cpu")
    values = reference(DOUBLE)
    with torch.no_grad():
        for name, p in model.named_parameters():
            p.copy_(distribute_tensor(values[name].detach(), p.device_mesh, p.placements))
    same(model.state_dict(), DOUBLE)


def checkpoints(rank, world):
    """Saved by some processes, read by others; a full disk leaves what was there; training goes on where it was."""
    folder = [tempfile.mkdtemp() if rank == 0 else None]
    dist.broadcast_object_list(folder, 0)
    place = os.path.join(folder[0], "checkpoint")
    model = fully_shard(network(DOUBLE))
    rule = optimizer(model.parameters())
    train(model, rule, DOUBLE, rank, world, steps=10)
    state, rates = get_state_dict(model, rule)
    dcp.save({"model": state, "optimizer": rates, "step": 10}, checkpoint_id=place)
    _full_disk(place, rank, world)
    group = dist.new_group([0])  # one process reads what all have saved, and goes on alone
    if rank == 0:
        alone = network(DOUBLE)
        other = optimizer(alone.parameters())
        wanted = dict(zip(("model", "optimizer", "step"), (*get_state_dict(alone, other), 0)))
        dcp.load(wanted, checkpoint_id=place, process_group=group)
        assert wanted["step"] == 10
        set_state_dict(alone, other, model_state_dict=wanted["model"], optim_state_dict=wanted["optimizer"])
        for x, y in zip(*[v[10:] for v in batches(DOUBLE)]):
            other.zero_grad()
            F.mse_loss(alone(x), y).backward()
            other.step()
        same(alone.named_parameters(), DOUBLE)
        single = os.path.join(folder[0], "one.pt")
        format_utils.dcp_to_torch_save(place, single)
        whole = torch.load(single)
        assert whole["step"] == 10 and type(whole["optimizer"]["param_groups"]) is list
        format_utils.torch_save_to_dcp(single, os.path.join(folder[0], "from one"))
        dcp.save({"model": alone.state_dict()}, checkpoint_id=place, no_dist=True)  # and the other way round
    dist.barrier()
    fresh = fully_shard(network(DOUBLE))
    wanted = {"model": fresh.state_dict()}
    dcp.load(wanted, checkpoint_id=place)
    fresh.load_state_dict(wanted["model"])
    same(fresh.state_dict(), DOUBLE)
    _from_one_file(os.path.join(folder[0], "from one"), rank, world)
    _in_the_background(fresh, place, rank, world)
    _from_rank0(fresh, rank)
    full, _ = get_state_dict(fresh, optimizer(fresh.parameters()), options=StateDictOptions(full_state_dict=True))
    assert all(type(v) is torch.Tensor for v in full.values())
    raised(lambda: dcp.load({"model": {"missing": torch.ones(1)}}, checkpoint_id=place), dcp.CheckpointException, "Missing key")


def _from_one_file(place, rank, world):
    """What was one file, read in pieces: training goes on where it was."""
    model = fully_shard(network(DOUBLE))
    rule = optimizer(model.parameters())
    wanted = dict(zip(("model", "optimizer", "step"), (*get_state_dict(model, rule), 0)))
    dcp.load(wanted, checkpoint_id=place)
    set_state_dict(model, rule, model_state_dict=wanted["model"], optim_state_dict=wanted["optimizer"])
    for x, y in zip(*[v[10:] for v in batches(DOUBLE)]):
        rule.zero_grad()
        F.mse_loss(model(x), y).backward()  # the whole batch on each
        rule.step()
    same(model.state_dict(), DOUBLE)


def _from_rank0(model, rank):
    """The whole state, which rank 0 alone has, given to all."""
    options = StateDictOptions(full_state_dict=True, cpu_offload=True)
    rule = optimizer(model.parameters())
    for p in model.parameters():
        p.grad = p.detach() * 0.5
    rule.step()
    rule.param_groups[0]["lr"] = 0.125
    whole = get_state_dict(model, rule, options=options)
    other = fully_shard(network(DOUBLE))
    with torch.no_grad():
        for p in other.parameters():
            p.zero_()
    rule = optimizer(other.parameters())
    weights, state = whole if rank == 0 else ({}, {})
    set_state_dict(other, rule, model_state_dict=weights, optim_state_dict=state,
                   options=StateDictOptions(full_state_dict=True, broadcast_from_rank0=True))
    assert rule.param_groups[0]["lr"] == 0.125
    got = get_state_dict(other, rule, options=options)
    torch.testing.assert_close((got[0], got[1]["state"]), (whole[0], whole[1]["state"]), rtol=0, atol=0)


def _in_the_background(model, place, rank, world):
    """What is saved is the state at the call, whatever happens to it afterwards, and the processes go on talking."""
    before = {k: v.full_tensor().clone() for k, v in model.state_dict().items()}
    saved = [dcp.async_save({"model": model.state_dict(), "step": step}, checkpoint_id=place) for step in range(3)]
    for _ in range(20):
        dist.all_reduce(torch.ones(1000))
    with torch.no_grad():
        for p in model.parameters():
            p.mul_(2)
    assert [future.result()["version"] for future in saved] == [1] * 3
    dist.barrier()
    wanted = {"model": model.state_dict(), "step": 0}
    dcp.load(wanted, checkpoint_id=place)
    assert wanted["step"] == 2
    assert all(torch.equal(v.full_tensor(), before[k]) for k, v in model.state_dict().items())
    failed = dcp.async_save({"x": torch.ones(1)}, checkpoint_id="/dev/null/no folder")
    raised(failed.result, dcp.CheckpointException, "rank 0")
    dist.barrier()


def _full_disk(place, rank, world):
    """One process cannot write: all hear of it, and the checkpoint is still the old one."""
    before, real = sorted(os.listdir(place)), files._write

    def full(value, path):
        real(value, path)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    if rank == world - 1:
        files._write = full
    try:
        raised(lambda: dcp.save({"step": 11}, checkpoint_id=place), dcp.CheckpointException, f"rank {world - 1}", "No space")
    finally:
        files._write = real
    dist.barrier()
    assert sorted(os.listdir(place)) == before
    wanted = {"step": 0}
    dcp.load(wanted, checkpoint_id=place)
    assert wanted["step"] == 10
    dist.barrier()


def shares_of_a_dataset(rank, world):
    sampler = torch.utils.data.DistributedSampler(range(10), seed=3)
    found = [None] * world
    dist.all_gather_object(found, list(sampler))
    assert sorted({i for part in found for i in part}) == list(range(10)) and len({len(p) for p in found}) == 1
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first


def optimizer_state_is_collected(rank, world):
    model = network(DOUBLE)
    wrapped = DistributedDataParallel(model)
    zero = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.AdamW, lr=1e-2)
    train(wrapped, zero, DOUBLE, rank, world, steps=10)
    zero.consolidate_state_dict(to=0)
    if rank:
        raised(zero.state_dict, RuntimeError, "has not been consolidated on this rank")
    state = [zero.state_dict() if rank == 0 else None]
    dist.broadcast_object_list(state, 0)
    alone = optimizer(network(DOUBLE).parameters())
    alone.load_state_dict(state[0])  # a single process's optimizer takes it as it is
    other = ZeroRedundancyOptimizer(wrapped.parameters(), torch.optim.AdamW, lr=5.0)
    other.load_state_dict(state[0])
    for x, y in zip(*[v[10:] for v in batches(DOUBLE)]):
        other.zero_grad()
        F.mse_loss(wrapped(share(x, rank, world)), share(y, rank, world)).backward()
        other.step()
    same(model.named_parameters(), DOUBLE)


for _check in (steps_without_exchange, gradients_are_clipped_alike, an_infinite_piece_stops_all, precision_and_meta_tensors,
               shares_of_a_dataset, optimizer_state_is_collected, evaluation_between_steps):
    _check.worlds = (1, 2)  # four processes would say the same, and take longer
warnings.simplefilter("error", RuntimeWarning)
CHECKS = [steps_without_exchange, uneven_inputs, communication_hooks, unused_parameters, checkpointing_and_saved_tensor_hooks,
          batch_norm_over_all_processes, different_models_are_refused, gradients_are_clipped_alike, an_infinite_piece_stops_all,
          whole_parameters_are_given_back, evaluation_between_steps, precision_and_meta_tensors, checkpoints,
          shares_of_a_dataset, optimizer_state_is_collected]
