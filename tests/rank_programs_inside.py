"""What the ranks of the tests run: collectives in compiled and profiled functions, and in training (see rank_programs.py)."""

from __future__ import annotations

import itertools
from typing import Any


def compiled(m: Any) -> Any:
    """Collectives inside of compiled functions happen at each call."""
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    counts = []

    def meet(x: Any) -> Any:
        d.barrier()
        counts.append(d.group.WORLD.engine().agreement.count)
        return x + 1

    def step(x: Any) -> Any:
        y = (x * 2 + 1).exp()
        work = d.all_reduce(y, async_op=True)
        z = x * 5
        work.wait()
        return y + z

    def expected(x: Any) -> Any:
        return sum((m.ones(4) * (r + i) * 2 + 1).exp() for r in range(size)) + x * 5

    program, meeting, good = m.compile(step), m.compile(meet), []
    for i in range(6):
        x = m.ones(4) * (rank + i)
        good.append(m.allclose(program(x), expected(x)) and m.allclose(program(x), step(x)))
        meeting(x)
    return [good, [b - a for a, b in itertools.pairwise(counts)]]


def _copied(m: Any, x: Any) -> Any:
    """What travels is a copy: of a tensor that is not contiguous, of one in half precision, of a factor times it."""
    d = m.distributed
    across, half, scaled = (x * 2).reshape(3, 2).t(), x.bfloat16() * 2, x + 1
    d.all_reduce(across)
    d.all_reduce(half)
    d.all_reduce(scaled, d._make_nccl_premul_sum(2.0))
    return across.reshape(-1) + half.float() + scaled + x


def _later(m: Any, x: Any) -> Any:
    d = m.distributed
    y = x * 2
    works = [d.all_reduce(y[i:i + 3].t() if i else y[:3], async_op=True) for i in (0, 3)]
    z = x.cos()
    for work in works:
        work.wait()
    parts = [m.empty(2, 3).t() for _ in range(d.get_world_size())]
    d.all_gather(parts, y.reshape(3, 2))
    return sum(parts).reshape(-1) * z


def _hooked(m: Any, x: Any) -> Any:
    d = m.distributed
    t = x.detach().clone().requires_grad_()
    t.register_hook(lambda grad: (half := grad.half(), d.all_reduce(half), half.float())[-1])
    (t ** 2).sum().backward()
    return t.grad


def collectives_compiled(m: Any) -> Any:
    """Collectives inside of compiled functions, call after call, beside the same functions as they are."""
    made = []
    for function in (_copied, _later, _hooked):
        for run in (function, m.compile(function)):
            made.append([run(m, m.arange(6.0) + m.distributed.get_rank() + i).tolist() for i in range(5)])
    return made


def profiled(m: Any) -> Any:
    """What a profiler sees: the backend's name and the operation's, with the shapes of what is sent."""
    d = m.distributed
    rank, x = d.get_rank(), m.ones(3, 2)
    with m.profiler.profile(record_shapes=True) as seen:
        d.all_reduce(x, async_op=True).wait()
        d.all_reduce_coalesced([x, m.ones(4, dtype=m.complex64)])
        d.reduce(x, 0)
        d.broadcast(x, 0)
        d.all_gather([m.zeros(3, 2) for _ in range(d.get_world_size())], x)
        d.scatter(m.zeros(2), [m.zeros(2) for _ in range(d.get_world_size())] if rank == 0 else None, src=0)
        d.all_to_all_single(m.zeros(4), m.zeros(4))
        d.barrier()
        if rank == 0:
            d.send(x, 1)
        elif rank == 1:
            d.recv(x)
    events = [e for e in seen.events() if e.name.startswith("gloo:")]
    assert all(e.is_async and e.cpu_time_total >= 0 for e in events)
    return sorted([e.name, [list(s) for s in e.input_shapes]] for e in events)


def local_sgd(m: Any) -> Any:
    """Gradients averaged over all processes at first, then over few; parameters every second step, and in two stages."""
    import importlib
    from collections import OrderedDict
    d, home = m.distributed, f"{m.__name__}.distributed"
    rank, size = d.get_rank(), d.get_world_size()
    parts = {name: importlib.import_module(f"{home}.{name}") for name in (
        "optim", "algorithms.model_averaging.averagers", "algorithms.model_averaging.hierarchical_model_averager",
        "algorithms.ddp_comm_hooks.post_localSGD_hook", "algorithms.ddp_comm_hooks.debugging_hooks")}
    optim, averagers, hierarchical, hooks, debugging = parts.values()
    few, _ = d.new_subgroups(size // 2)

    def trained(averager: Any, state: Any, hook: Any) -> Any:
        m.manual_seed(0)
        model = m.nn.parallel.DistributedDataParallel(m.nn.Linear(3, 1))
        model.register_comm_hook(state, hook)
        rule = optim.PostLocalSGDOptimizer(m.optim.SGD(model.parameters(), lr=2 ** -8), averager)
        seen = []
        for step in range(7):
            rule.zero_grad()
            model(m.arange(3.0) + rank + step / 10).square().mean().backward()
            rule.step()
            seen.append([round(v, 5) for v in model.module.weight.flatten().tolist()])
        saved = rule.state_dict()
        averager.step = 0
        rule.load_state_dict(saved)
        return seen, averager.step, sorted(saved)

    def state(after: bool) -> Any:
        return hooks.PostLocalSGDState(None, few, 2, after)

    return [trained(averagers.PeriodicModelAverager(2, 2), state(True), hooks.post_localSGD_hook),
            trained(averagers.PeriodicModelAverager(3), state(False), hooks.post_localSGD_hook),
            trained(averagers.PeriodicModelAverager(2, 1), None, debugging.noop_hook),
            trained(hierarchical.HierarchicalModelAverager(OrderedDict([(2, size // 2), (4, size)]), 1), None,
                    debugging.noop_hook)]
