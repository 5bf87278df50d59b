"""Collectives between 2 and 4 processes: what PyTorch's gloo backend gives, flambeau gives over MPI."""

import itertools

import pytest
import rank_programs as programs
import rank_programs_inside as inside
from ranks import RankFailed, Ranks

pytest.importorskip("mpi4py", reason="the extra 'mpi' is not installed")
DTYPES = ("float32", "float64", "int32", "int64", "uint8", "int8", "float16", "bfloat16")
OPS = ("SUM", "PRODUCT", "MIN", "MAX")


@pytest.fixture(scope="module", params=[2, 4])
def worlds(request, tmp_path_factory):
    path = tmp_path_factory.mktemp("rendezvous")
    both = [Ranks(request.param, path / name, name) for name in ("flambeau", "torch")]
    yield both
    for ranks in both:
        ranks.close()


def same(worlds, program, *args):
    ours, theirs = (ranks(program, *args) for ranks in worlds)
    assert ours == theirs


CASES = [(dtype, op, i % 2 == 0, i % 3 != 0) for i, (dtype, op) in enumerate(itertools.product(DTYPES, OPS))]
CASES += [("complex64", "SUM", True, False), ("int32", "BAND", False, True), ("uint8", "BOR", True, True),
          ("int64", "BXOR", False, False)]


@pytest.mark.parametrize("dtype,op,async_op,contiguous", CASES)
def test_reductions(worlds, dtype, op, async_op, contiguous):
    same(worlds, programs.reductions, dtype, op, async_op, contiguous)


@pytest.mark.parametrize("dtype", ["float32", "int64", "bfloat16"])
def test_reduce_scatter_tensor(worlds, dtype):
    same(worlds, programs.reduce_scatter_tensor, dtype)


@pytest.mark.parametrize("dtype,async_op,contiguous", [
    (dtype, i % 2 == 0, i % 3 == 0) for i, dtype in enumerate(DTYPES)])
def test_movements(worlds, dtype, async_op, contiguous):
    same(worlds, programs.movements, dtype, async_op, contiguous)


@pytest.mark.parametrize("program", [programs.uneven, programs.to_others, programs.objects, programs.groups, programs.futures,
                                     programs.coalesced, programs.empties, programs.unwaited, programs.methods,
                                     programs.options, programs.nested,
                                     inside.local_sgd],
                         ids=lambda p: p.__name__)
def test_program(worlds, program):
    same(worlds, program)


def test_large_tensors_under_way_together(worlds):
    assert worlds[0](programs.large, 300_000) == [[True] * 3] * worlds[0].size


def test_large_tensors_in_pieces(worlds):
    assert worlds[0](programs.pieces) == [[True] * 4] * worlds[0].size


def test_collectives_inside_compiled_functions(worlds):
    for rank, answers in enumerate(worlds[0](inside.collectives_compiled)):
        for eager, compiled in zip(answers[::2], answers[1::2]):
            assert eager == compiled, rank


# What gloo cannot do, or does otherwise -------------------------------------------------------------------------------
@pytest.mark.parametrize("async_op", [False, True])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int64", "complex64"])
def test_average(worlds, dtype, async_op):
    ours, size = worlds[0], worlds[0].size
    mean = [sum(i % 5 + r + 1 for r in range(size)) / size for i in range(6)]
    expected = [[int(v) if dtype == "int64" else v + 2j * v if dtype == "complex64" else v for v in mean[i:i + 3]]
                for i in (0, 3)]
    for answer in ours(programs.reductions, dtype, "AVG", async_op, True):
        assert answer[0][1] == expected


def test_truth_values(worlds):
    ours = worlds[0]
    for op, expected in {"SUM": True, "PRODUCT": True, "MIN": True, "MAX": True, "BAND": True, "BOR": True}.items():
        for answer in ours(programs.reductions, "bool", op, False, True):
            assert answer[0] == ["torch.bool", [[expected] * 3] * 2]


def _real(value):
    return [_real(v) for v in value] if isinstance(value, list) else value.real if isinstance(value, complex) else value


def test_movements_of_complex_numbers(worlds):
    """Which gloo refuses. Their real parts are what is moved of real tensors."""
    ours = worlds[0]
    real = ours(programs.movements, "float32", False, False)
    for got, expected in zip(ours(programs.movements, "complex64", True, False), real):
        assert str(_real(got)).replace("complex64", "float32") == str(expected)


def test_factors(worlds):
    n = worlds[0].size
    assert worlds[0](programs.premul) == [["torch.float32", [n * (n + 1) / 2] * 2]] * n


def test_coalescing_manager(worlds):
    n = worlds[0].size
    assert worlds[0](programs.coalescing) == [[["torch.float32", [float(n * n)] * 3], ["torch.float32", [2.0 * n * n] * 2]]] * n


def test_split_group(worlds):
    for rank, (total, ranks, own) in enumerate(worlds[0](programs.splitting)):
        expected = [r for r in range(worlds[0].size) if r % 2 == rank % 2]
        assert (total, ranks[own]) == (sum(expected), rank)
        assert ranks == (expected if rank % 2 else expected[::-1])  # in the order given


def test_a_barrier_that_names_who_is_missing(worlds):
    ours, last = worlds[0], worlds[0].size - 1
    answers = ours(programs.monitored)
    assert "Rank 0 timed out in monitoredBarrier after 0 ms" in answers[0][0]
    assert "Rank 1 failed to pass monitoredBarrier in 100 ms" in answers[0][1]
    for text, word in zip(answers[0][2:], ("Rank", "Ranks"), strict=True):
        assert f"{word} {last} failed to pass monitoredBarrier in 300 ms" in text
    for answer in answers[1:-1]:
        assert all("successfully reached monitoredBarrier, but received errors while waiting for send/recv from rank 0" in text
                   for text in answer)
    assert answers[-1] == []


def test_a_group_that_this_process_is_not_in(worlds):
    for rank, (done, values, warned) in enumerate(worlds[0](programs.outside)):
        assert done == [None] * 3 and values == [1, 1] and warned == (0 if rank == 0 else 3)


# NCCL's engine, with a stand-in for NCCL ---------------------------------------------------------------------------------
@pytest.mark.parametrize("args", [("float32", "SUM", False, True), ("float64", "MAX", True, False),
                                  ("int64", "PRODUCT", True, True), ("complex64", "SUM", False, False),
                                  ("float32", "AVG", False, False), ("bool", "SUM", False, True)], ids=str)
def test_reductions_over_nccl(worlds, args):
    assert worlds[0](programs.over_nccl, programs.reductions, *args) == worlds[0](programs.reductions, *args)


@pytest.mark.parametrize("program,args", [(programs.movements, ("float32", True, False)),
                                          (programs.movements, ("int32", False, True)), (programs.uneven, ()),
                                          (programs.objects, ()), (programs.premul, ()),
                                          (programs.reduce_scatter_tensor, ("float32",)), (programs.in_a_ring, ()),
                                          (programs.coalesced, ())], ids=lambda v: getattr(v, "__name__", str(v)))
def test_programs_over_nccl(worlds, program, args):
    assert worlds[0](programs.over_nccl, program, *args) == worlds[0](program, *args)


def test_processes_on_one_gpu_are_refused_in_words(worlds):
    for rank, said in enumerate(worlds[0](programs.over_nccl, programs.on_one_device)):
        assert f"[rank {rank}]" in said and f"ranks {list(range(worlds[0].size))} use the same device, GPU 0 of here" in said


# Wrong calls ------------------------------------------------------------------------------------------------------------
LIKE_TORCH = """
d.all_reduce([1])
d.all_reduce(m.ones(2), op=d.ReduceOp.BAND)
d.all_reduce(m.ones(2, dtype=m.complex64), op=d.ReduceOp.MAX)
d.broadcast(m.ones(2))
d.broadcast(m.ones(2), 0, group_src=0)
d.broadcast(m.ones(2), n + 3)
d.all_gather([m.ones(2)], m.ones(2))
d.all_gather([m.ones(3)] * n, m.ones(2))
d.all_gather([m.ones(2, dtype=m.int64)] * n, m.ones(2))
d.all_gather(m.ones(2), m.ones(2))
d.gather(m.ones(2), None, dst=rank)
d.scatter(m.ones(2), None, src=rank)
d.scatter(m.ones(2), [m.ones(2)], src=rank)
d.send(m.ones(2), rank)
d.P2POp(d.all_reduce, m.ones(1), 0)
d.P2POp(d.isend, m.ones(1))
d.batch_isend_irecv([1])
d.all_to_all_single(m.ones(3), m.ones(3), [4] * n, [3] * n)
d.all_to_all([m.ones(2)], [m.ones(2)])
d.new_group([0, n])
d.new_group([0, 0])
d.new_group(list(range(n + 1)))
d.new_subgroups(n + 1)
d.new_subgroups_by_enumeration([[0], [0]])
d.new_subgroups_by_enumeration([])
d.init_process_group("gloo", rank=0, world_size=1)
d.monitored_barrier(timeout=3)
d.scatter_object_list([], [1])
d.get_backend(d.GroupMember.NON_GROUP_MEMBER)
""".strip().splitlines()


@pytest.mark.parametrize("call", LIKE_TORCH)
def test_wrong_calls_are_refused_as_by_pytorch(worlds, call):
    """Before anything is sent, with PyTorch's kind of error."""
    ours, theirs = ([text.partition(":")[0] for text in ranks(programs.refused, call)] for ranks in worlds)
    assert ours == theirs and "nothing" not in ours


@pytest.mark.parametrize("call,message", [
    ("d.recv(m.ones(2), rank)", "source rank should not be the same"),
    ("d.get_group_rank(d.group.WORLD, n)", "is not part of group"),
    ("d.get_global_rank(d.group.WORLD, n)", "is not part of group"), ("d.isend(m.ones(2), other, tag=-1)", "tags are from 0"),
    ("d.all_reduce(m.ones(2), op=d.ReduceOp.PREMUL_SUM)", "needs a factor"),
    ("d.all_reduce(m.ones(2), group='world')", "expected a ProcessGroup"),
    ("d.all_reduce(m.ones(2), op='sum')", "expected a ReduceOp"),
    ("d.all_gather_into_tensor(m.ones(n + 1), m.ones(1))", "times as many elements"),
    ("d.reduce_scatter_tensor(m.ones(2), m.ones(2))", "times as many elements"),
    ("d.split_group(split_ranks=[])", "cannot be None or empty"), ("d.new_group(timeout=3)", "datetime.timedelta"),
    ("d.new_group(pg_options=3)", "pg_options"),
    ("d.all_reduce(m.ones(2).to_sparse())", "sparse tensors are not implemented"),
    ("d.all_reduce(m.ones(2, dtype=m.bool), op=d.ReduceOp.AVG)", "Cannot use"),
])
def test_wrong_calls(worlds, call, message):
    for answer in worlds[0](programs.refused, call):
        assert message in answer


def test_the_group_is_usable_after_wrong_calls(worlds):
    same(worlds, programs.coalesced)


def test_an_exception_of_one_rank_is_reported(worlds):
    with pytest.raises(RankFailed):
        worlds[0](programs.reductions, "no such dtype", "SUM", False, True)
