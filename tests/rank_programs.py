"""What the ranks of the tests run, with flambeau or with torch; no imports of either. Each returns plain data."""

from __future__ import annotations

from typing import Any


def plain(value: Any) -> Any:
    if hasattr(value, "tolist"):
        return [str(value.dtype), value.tolist()]
    return [plain(v) for v in value] if isinstance(value, (list, tuple)) else value


def _values(m: Any, dtype: str, rank: int, shape: tuple[int, ...] = (2, 3)) -> Any:
    n = shape[0] * shape[1]
    base = m.arange(n) % 5 + rank + 1
    if dtype.startswith("complex"):
        return m.complex(base.float(), (base * 2).float()).to(getattr(m, dtype)).reshape(shape)
    return base.to(getattr(m, dtype)).reshape(shape)


def reductions(m: Any, dtype: str, op: str, async_op: bool, contiguous: bool) -> Any:
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    how = getattr(d.ReduceOp, op)

    def fresh(shape: tuple[int, ...] = (2, 3)) -> Any:
        made = _values(m, dtype, rank, shape)
        return made if contiguous else _values(m, dtype, rank, shape[::-1]).t()

    made, works = [], []

    def start(call: Any, *args: Any, **options: Any) -> None:
        work = call(*args, **options, async_op=async_op)
        assert (work is not None) == async_op
        if work is not None:
            works.append(work)

    x = fresh()
    start(d.all_reduce, x, how)
    made.append(x)
    y = fresh()
    start(d.reduce, y, 1, how)
    if rank == 1:
        made.append(y)
    out = m.zeros(2, 3, dtype=x.dtype)
    inputs = [fresh() for _ in range(size)]
    if m.__name__ == "torch":  # gloo adds up the wrong elements of tensors that are not contiguous
        inputs = [i.contiguous() for i in inputs]
    start(d.reduce_scatter, out, inputs, how)
    made.append(out)
    for work in works:
        work.wait()
        assert work.is_completed() or m.__name__ == "torch"
    return plain(made)


def reduce_scatter_tensor(m: Any, dtype: str, op: str = "SUM") -> Any:
    d = m.distributed
    n = d.get_world_size()
    out = m.zeros(3, 2, dtype=getattr(m, dtype))
    d.reduce_scatter_tensor(out, _values(m, dtype, d.get_rank(), (3 * n, 2)), getattr(d.ReduceOp, op))
    return plain(out)


def movements(m: Any, dtype: str, async_op: bool, contiguous: bool) -> Any:
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    x = _values(m, dtype, rank) if contiguous else _values(m, dtype, rank, (3, 2)).t()
    kind, works = x.dtype, []

    def blank(*shape: int) -> Any:
        return m.zeros(*shape, dtype=kind) if contiguous else m.zeros(*shape[::-1], dtype=kind).t()

    def start(call: Any, *args: Any, **options: Any) -> None:
        works.append(call(*args, **options, async_op=async_op))

    parts = [blank(2, 3) for _ in range(size)]
    start(d.all_gather, parts, x)
    stacked = m.zeros(2 * size, 3, dtype=kind)
    start(d.all_gather_into_tensor, stacked, x.contiguous())
    sent = x.clone()
    start(d.broadcast, sent, size - 1)
    gathered = [blank(2, 3) for _ in range(size)] if rank == 1 else None
    start(d.gather, x, gathered, dst=1)
    scattered = blank(2, 3)
    start(d.scatter, scattered, [x + i for i in range(size)] if rank == 0 else None, src=0)
    exchanged = [blank(2, 3) for _ in range(size)]
    start(d.all_to_all, exchanged, [x + i for i in range(size)])
    for work in works:
        assert (work is not None) == async_op
        if work is not None:
            work.wait()
    return plain([parts, stacked, sent, gathered or [], scattered, exchanged])


def uneven(m: Any) -> Any:
    """all_to_all_single with splits, all_to_all of different shapes."""
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    given = [(rank + i) % 3 for i in range(size)]
    wanted = [(i + rank) % 3 for i in range(size)]
    x = (m.arange(float(sum(given) * 2)) + 100 * rank).reshape(-1, 2)
    out = m.zeros(sum(wanted), 2)
    d.all_to_all_single(out, x, wanted, given)
    equal = m.zeros(size)
    d.all_to_all_single(equal, m.arange(float(size)) + 10 * rank)
    return plain([out, equal])


def to_others(m: Any) -> Any:
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    right, left = (rank + 1) % size, (rank - 1) % size
    made = []
    x = m.full((2, 2), float(rank))
    got = m.zeros(2, 2)
    for tag in (0, 7):
        sending, receiving = d.isend(x + tag, right, tag=tag), d.irecv(got, left, tag=tag)
        receiving.wait()
        sending.wait()
        made.append(got.clone())
    if rank == 0:  # tags tell messages apart, whatever their order
        for work in [d.isend(m.ones(1), 1, tag=1), d.isend(m.ones(1) * 2, 1, tag=2)]:
            work.wait()
    elif rank == 1:
        first, second = m.zeros(1), m.zeros(1)
        for work in [d.irecv(second, 0, tag=2), d.irecv(first, 0, tag=1)]:
            work.wait()
        made += [first, second]
    d.barrier()
    if rank == 0:
        from_whom = []
        for _ in range(size - 1):
            got_any = m.zeros(1)
            source = d.recv(got_any)
            assert got_any.item() == source
            from_whom.append(source)
        made.append(sorted(from_whom))
    else:
        d.send(m.full((1,), float(rank)), 0)
    d.barrier()  # what comes now must not be taken for one of those
    a, b = m.zeros(3), m.zeros(3)
    works = d.batch_isend_irecv([d.P2POp(d.isend, m.ones(3) * rank, right), d.P2POp(d.irecv, a, left)] +
                                ([d.P2POp(d.isend, m.ones(3) * -rank, left), d.P2POp(d.irecv, b, right)] if size > 2 else []))
    for work in works:
        work.wait()
    return plain([*made, a, b])


def objects(m: Any) -> Any:
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    mine = {"rank": rank, "long": "x" * (1000 * rank)}
    everybody = [None] * size
    d.all_gather_object(everybody, mine)
    gathered = [None] * size if rank == 1 else None
    d.gather_object(mine, gathered, dst=1)
    said = [mine, rank] if rank == 0 else [None, None]
    d.broadcast_object_list(said, src=0)
    got = [None]
    d.scatter_object_list(got, [f"to {i}" for i in range(size)] if rank == 0 else None, src=0)
    sent = ["hello", 5] if rank == 0 else [None, None]
    if rank == 0:
        d.send_object_list(sent, 1)
    elif rank == 1:
        d.recv_object_list(sent, 0)
    d.barrier()
    return [everybody, gathered, said, got, sent if rank < 2 else None]


def groups(m: Any) -> Any:
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    made = []
    last = d.new_group([0, size - 1])
    made.append(last is d.GroupMember.NON_GROUP_MEMBER)
    if rank in (0, size - 1):
        x = m.ones(2) * (rank + 1)
        d.all_reduce(x, group=last)
        y = m.ones(2) * rank
        d.broadcast(y, size - 1, group=last)
        z = m.ones(2) * rank
        d.broadcast(z, group=last, group_src=1)
        made += [x, y, z, d.get_rank(last), d.get_world_size(last), d.get_process_group_ranks(last),
                 d.get_global_rank(last, 1), d.get_group_rank(last, size - 1)]
    own, _ = d.new_subgroups(2)
    x = m.ones(1) * rank
    d.all_reduce(x, group=own)
    made += [x, d.get_process_group_ranks(own)]
    made += [d.is_initialized(), d.get_backend(), d.get_rank(d.GroupMember.NON_GROUP_MEMBER)]
    return plain(made)


def futures(m: Any) -> Any:
    """A future is done without anybody waiting, callbacks run, chains of them too."""
    import threading
    d = m.distributed
    x, seen, told = m.ones(1000), [], threading.Event()
    future = d.all_reduce(x, async_op=True).get_future()
    after = future.then(lambda f: f.value()[0] / d.get_world_size())
    after.add_done_callback(lambda f: (seen.append(f.value()), told.set()))
    assert told.wait(30)
    y = m.ones(3)
    work = d.all_reduce(y, async_op=True)
    twice = work.get_future().then(lambda f: f.value()[0] * 2).wait()
    return plain([seen[0].sum(), after.wait().sum(), twice, work.is_success()])


def coalesced(m: Any) -> Any:
    d = m.distributed
    size = d.get_world_size()
    x, y = m.ones(3), m.ones(2) * 2
    d.all_reduce_coalesced([x, y])
    return plain([x, y, size])


def coalescing(m: Any) -> Any:
    d = m.distributed
    x, y = m.ones(3), m.ones(2) * 2
    with d._coalescing_manager() as manager:
        d.all_reduce(x)
        d.all_reduce(y)
    with d._coalescing_manager(async_ops=True) as manager:
        d.all_reduce(x)
        d.all_reduce(y)
    manager.wait()
    return plain([x, y])


def refused(m: Any, call: str) -> str:
    """The error of a wrong call; all ranks make the same one."""
    d = m.distributed
    try:
        n, rank = d.get_world_size(), d.get_rank()
        eval(call, {"m": m, "d": d, "n": n, "rank": rank, "other": (rank + 1) % n})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return "nothing"


def premul(m: Any) -> Any:
    d = m.distributed
    x = m.ones(2)
    d.all_reduce(x, op=d._make_nccl_premul_sum(d.get_rank() + 1.0))
    return plain(x)


def empties(m: Any) -> Any:
    d = m.distributed
    x = m.zeros(0, 3)
    d.all_reduce(x)
    d.broadcast(x, 0)
    parts = [m.zeros(0, 3) for _ in range(d.get_world_size())]
    d.all_gather(parts, x)
    scalar = m.tensor(2.0)
    d.all_reduce(scalar)
    return plain([x, parts, scalar])


def large(m: Any, n: int) -> Any:
    """Several large operations under way at once, finished in another order."""
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    xs = [m.full((n,), float(rank + i)) for i in range(3)]
    works = [d.all_reduce(x, async_op=True) for x in xs]
    matrix = m.ones(64, 64)
    for _ in range(20):
        matrix = (matrix @ matrix) / 64
    for work in reversed(works):
        work.wait()
    total = sum(range(size))
    return [bool((x == total + size * i).all()) for i, x in enumerate(xs)]


def unwaited(m: Any) -> Any:
    """Nobody waits for these; they are done all the same."""
    import time
    d = m.distributed
    x = m.ones(100000)
    work = d.all_reduce(x, async_op=True)
    end = time.monotonic() + 30
    while not work.is_completed() and time.monotonic() < end:
        time.sleep(0.001)
    return [work.is_completed(), x.sum().item() / 100000]


def nested(m: Any) -> Any:
    """Groups inside of groups, which only the processes of each outer one make."""
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    outer, _ = d.new_subgroups_by_enumeration([list(range(0, size, 2)), list(range(1, size, 2))])
    inner, all_inner = d.new_subgroups(1, group=outer)
    x = m.ones(1) * rank
    d.all_reduce(x, group=inner)
    d.all_reduce(x, group=outer)
    return plain(x), inner.size(), len(all_inner), sum(g == d.GroupMember.NON_GROUP_MEMBER for g in all_inner)


def splitting(m: Any) -> Any:
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    part = d.split_group(split_ranks=[[r for r in range(size) if r % 2], [r for r in range(size - 1, -1, -1) if not r % 2]])
    x = m.ones(1) * rank
    d.all_reduce(x, group=part)
    local = d.new_group([rank - rank % 2, rank - rank % 2 + 1], use_local_synchronization=True)
    y = m.ones(1) * rank
    d.all_reduce(y, group=local)
    d.destroy_process_group(local)
    assert y.item() == 2 * (rank - rank % 2) + 1
    return [x.item(), d.get_process_group_ranks(part), d.get_rank(part)]


def differ(m: Any, call: str, careful: bool = False) -> str:
    """The error of a call that is another on each rank, in a group of its own."""
    d = m.distributed
    g = d.new_group()
    d.set_debug_level(d.DebugLevel.DETAIL if careful else d.DebugLevel.OFF)
    try:
        eval(call, {"m": m, "d": d, "g": g, "rank": d.get_rank()})
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    finally:
        d.set_debug_level(d.DebugLevel.OFF)
    return "nothing"


# Of `torch.distributed.nn.functional`: f is the module, x and y tensors with gradients, d the package.
DIFFERENTIABLE = {
    "broadcast": "f.broadcast(x, 1)", "reduce": "f.reduce(x, 1)", "all_reduce": "f.all_reduce(x)",
    "gather": "sum(t * (i + 1) for i, t in enumerate(f.gather(x, 1)))",
    "all_gather": "sum(t * (i + 1) for i, t in enumerate(f.all_gather(x)))",
    "scatter": "f.scatter([x, y], 0)", "reduce_scatter": "f.reduce_scatter(m.zeros(4), [x, y])",
    "all_to_all": "sum(t * (i + 1) for i, t in enumerate(f.all_to_all([m.zeros(4), m.zeros(4)], [x, y])))",
    "all_to_all_single": "f.all_to_all_single(m.zeros(4), x)",
    "all_to_all_single with splits": "f.all_to_all_single(m.zeros(2 + 4 * rank), x, [1 + 2 * rank] * 2, [1, 3])[:2].repeat(2)",
}


def differentiated(m: Any, name: str) -> Any:
    import importlib
    f, d = importlib.import_module(f"{m.__name__}.distributed.nn.functional"), m.distributed
    rank = d.get_rank()
    x, y = ((m.arange(4.0) + 10 * rank + i).requires_grad_() for i in range(2))
    out = eval(DIFFERENTIABLE[name], {"f": f, "x": x, "y": y, "m": m, "d": d, "rank": rank})
    (out * (m.arange(4.0) + rank + 1)).sum().backward()
    return plain([out.detach() if rank or name not in ("reduce", "gather") else 0, x.grad, y.grad if y.grad is not None else 0])


# Of `torch.distributed._functional_collectives`: c is the module.
NEW_TENSORS = {
    "all_reduce": "c.all_reduce(x, 'sum', g)", "max": "c.all_reduce(x, 'max', g)", "broadcast": "c.broadcast(x, 1, g)",
    "all_gather_tensor": "c.all_gather_tensor(x, 0, g)", "all_gather_tensor, dim 1": "c.all_gather_tensor(x, 1, g)",
    "reduce_scatter_tensor": "c.reduce_scatter_tensor(x, 'sum', 0, g)",
    "reduce_scatter_tensor, dim 1": "c.reduce_scatter_tensor(x, 'sum', 1, g)",
    "all_to_all_single": "c.all_to_all_single(x, None, None, g)",
    "all_reduce_coalesced": "sum(c.all_reduce_coalesced([x, 2 * x], 'sum', g))",
    "all_gather_tensor_autograd": "through(c.all_gather_tensor_autograd(x, 0, g))",
    "reduce_scatter_tensor_autograd": "through(c.reduce_scatter_tensor_autograd(x, 'sum', 0, g))",
    "all_to_all_single_autograd": "through(c.all_to_all_single_autograd(x, [2, 2], [2, 2], g))",
}


def functional(m: Any, name: str) -> Any:
    import importlib
    c, d = importlib.import_module(f"{m.__name__}.distributed._functional_collectives"), m.distributed
    x = (m.arange(8.0).reshape(4, 2) + 10 * d.get_rank()).requires_grad_("autograd" in name)

    def through(out: Any) -> Any:
        (out * (m.arange(float(out.numel())).reshape(out.shape) + d.get_rank())).sum().backward()
        return [out.detach(), x.grad]

    out = eval(NEW_TENSORS[name], {"c": c, "x": x, "g": d.group.WORLD, "m": m, "through": through})
    return plain([o if isinstance(o, list) else c.wait_tensor(o) for o in out] if isinstance(out, list) else c.wait_tensor(out))


def over_nccl(m: Any, program: Any, *args: Any) -> Any:
    """A program with NcclEngine in the place of MPI's, on tensors of the CPU and NCCL's stand-in."""
    import nccl_stub

    from flambeau.distributed import groups, nccl
    nccl.library, nccl.NcclEngine.device, nccl.Lane = lambda: nccl_stub, "cpu", nccl_stub.Lane
    world = groups.GroupMember.WORLD
    groups.GroupMember.WORLD = m.distributed.new_group(backend="cpu:nccl")
    try:
        return program(m, *args)
    finally:
        groups.GroupMember.WORLD = world


def monitored(m: Any) -> Any:
    import datetime
    import time
    d = m.distributed
    d.monitored_barrier(timeout=datetime.timedelta(seconds=30))
    said = []
    if d.get_rank() == 0:
        for timeout in (datetime.timedelta(0), 0.1):  # a number is taken for seconds
            try:
                d.monitored_barrier(timeout=timeout)
            except RuntimeError as error:
                said.append(str(error))
    else:
        d.group.WORLD.told += 2  # its count of barriers stays in step
    for all_ranks in (False, True):
        if d.get_rank() != d.get_world_size() - 1:  # the last one does not come
            try:
                d.monitored_barrier(timeout=datetime.timedelta(seconds=0.3), wait_all_ranks=all_ranks)
                said.append("nothing")
            except RuntimeError as error:
                said.append(str(error))
        else:
            d.group.WORLD.told += 1  # its count of barriers stays in step
    time.sleep(0.1)
    d.barrier()
    return said


def outside(m: Any) -> Any:
    """Calls for a group that this process is not in: nothing is done, and a warning says so."""
    import warnings
    d = m.distributed
    group = d.new_group([0])
    x = m.ones(2)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        done = [d.all_reduce(x, group=group), d.broadcast(x, 0, group=group), d.barrier(group)]
    return [done, x.tolist(), sum("does not belong to the given group" in str(w.message) for w in caught)]


def pieces(m: Any) -> Any:
    """all_reduce of what is too large for one piece, waited for at once and later."""
    from flambeau.distributed.mpi import engine
    d, before = m.distributed, engine._PIECE
    engine._PIECE, n, size = 1024, 5000, d.get_world_size()
    try:
        xs = [m.arange(float(n)) + i for i in range(4)]
        d.all_reduce(xs[0])
        ops = (d.ReduceOp.SUM, d.ReduceOp.AVG, d.ReduceOp.SUM)
        works = [d.all_reduce(x, op=op, async_op=True) for x, op in zip(xs[1:], ops)]
        works[2].wait()
        while not works[0].is_completed():
            pass
        works[0].wait()
        works[1].get_future().wait()
    finally:
        engine._PIECE = before
    return [bool((x == (m.arange(float(n)) + i) * (1 if i == 2 else size)).all()) for i, x in enumerate(xs)]


def methods(m: Any) -> Any:
    """Collectives as methods of a group."""
    d = m.distributed
    group, rank = d.group.WORLD, d.get_rank()
    x, y, parts = m.ones(2) * rank, m.ones(2) * rank, [m.zeros(1) for _ in range(d.get_world_size())]
    for work in (group.allreduce([x]), group.broadcast(y, 1), group.allgather([parts], [m.ones(1) * rank]), group.barrier()):
        work.wait()
    z = m.zeros(1)
    if rank < 2:
        (group.send([m.ones(1) * 5], 1, 3) if rank == 0 else group.recv([z], 0, 3)).wait()
    return plain([x, y, parts, z, group.rank(), group.size()])


def options(m: Any) -> Any:
    """Collectives as methods of a group, with PyTorch's options; roots are ranks of the group."""
    d = m.distributed
    group, rank, n = d.group.WORLD, d.get_rank(), d.get_world_size()

    def made(name: str, **values: Any) -> Any:
        found = getattr(d, name)()
        for key, value in values.items():
            setattr(found, key, value)
        return found

    def numbers(factor: float = 1.0) -> Any:
        return [m.full((2,), factor * k + rank) for k in range(n)]

    x, y, z, s, r = (m.full((2,), 1.0 + rank) for _ in range(5))
    gathered, pieces, rows = numbers(), numbers(), m.zeros(n)
    works = [group.allreduce([x], made("AllreduceOptions", reduceOp=d.ReduceOp.MAX)),
             group.broadcast([y], made("BroadcastOptions", rootRank=1)),
             group.reduce([z], made("ReduceOptions", rootRank=1, reduceOp=d.ReduceOp.PRODUCT)),
             group.gather([gathered] if rank == 1 else [], [m.ones(2) * rank], made("GatherOptions", rootRank=1)),
             group.scatter([s], [numbers(10.0)] if rank == 0 else [], made("ScatterOptions")),
             group.reduce_scatter([r], [numbers(3.0)], made("ReduceScatterOptions")),
             group.alltoall_base(rows, m.arange(n) * 1.0 + 10 * rank, [], [], made("AllToAllOptions")),
             group.allreduce_coalesced(pieces, made("AllreduceCoalescedOptions")), group.barrier(made("BarrierOptions"))]
    for work in works:
        work.wait()
    try:
        made("AllreduceOptions", reduceop=1)
    except AttributeError as error:
        said = str(error)
    defaults = [made("ReduceOptions").rootRank, made("BarrierOptions").device_ids, str(made("GatherOptions").timeout)]
    return plain([x, y, z if rank == 1 else 0, gathered, s, r, rows, pieces, "reduceop" in said, defaults])


def in_a_ring(m: Any) -> Any:
    """Every process sends before it receives, more than is buffered on the way: apart they would wait for ever."""
    d = m.distributed
    rank, size = d.get_rank(), d.get_world_size()
    x, got = m.full((1 << 20,), float(rank)), m.zeros(1 << 20)
    for work in d.batch_isend_irecv([d.P2POp(d.isend, x, (rank + 1) % size), d.P2POp(d.irecv, got, (rank - 1) % size)]):
        work.wait()
    return got[0].item(), got.sum().item() / got.numel()


def on_one_device(m: Any) -> Any:
    """What NCCL's engine says of two processes with one GPU. (over_nccl runs it.)"""
    import nccl_stub
    place, nccl_stub.Lane.place = nccl_stub.Lane.place, lambda lane: "GPU 0 of here"
    try:
        m.distributed.all_reduce(m.ones(1))
    except m.distributed.DistBackendError as error:
        return str(error)
    finally:
        nccl_stub.Lane.place = place
