"""A world of one process: the same answers as PyTorch's gloo backend."""

import pytest
import torch
import torch.distributed

import flambeau

ADDRESS = "tcp://127.0.0.1:{}"


@pytest.fixture(params=["flambeau", "torch"])
def m(request, tmp_path):
    module = {"flambeau": flambeau, "torch": torch}[request.param]
    module.distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/rendezvous", rank=0, world_size=1)
    yield module
    module.distributed.destroy_process_group()


def test_questions(m):
    d = m.distributed
    assert d.is_available() and d.is_initialized()
    assert (d.get_rank(), d.get_world_size(), d.get_backend()) == (0, 1, "gloo")
    assert d.get_process_group_ranks(d.group.WORLD) == [0]
    assert d.get_world_size(d.new_group([0])) == 1


def test_collectives(m):
    d, x = m.distributed, m.arange(4.0)
    work = d.all_reduce(x, op=d.ReduceOp.SUM, async_op=True)
    work.wait()
    assert work.is_completed() and x.tolist() == [0, 1, 2, 3]
    parts = [m.zeros(4)]
    d.all_gather(parts, x)
    assert parts[0].tolist() == x.tolist()
    out = m.zeros(4)
    d.all_gather_into_tensor(out, x)
    assert out.tolist() == x.tolist()
    d.scatter(out, [x * 2], src=0)
    assert out.tolist() == [0, 2, 4, 6]
    d.reduce_scatter(out, [x * 3])
    assert out.tolist() == [0, 3, 6, 9]
    d.broadcast(out, 0)
    d.reduce(out, 0)
    d.barrier()
    found = [None]
    d.all_gather_object(found, {"a": [1]})
    assert found == [{"a": [1]}]
    d.broadcast_object_list(found, src=0)


def test_data_parallel(m):
    net = m.nn.parallel.DistributedDataParallel(m.nn.Linear(2, 1))
    assert list(net.state_dict()) == ["module.weight", "module.bias"]
    with net.no_sync():
        net(m.ones(1, 2)).sum().backward()
    net(m.ones(1, 2)).sum().backward()
    assert net.module.weight.grad.tolist() == [[2.0, 2.0]]
    sampler = m.utils.data.DistributedSampler(list(range(5)), shuffle=False)
    assert list(sampler) == [0, 1, 2, 3, 4]


def test_stores(m):
    store = m.distributed.HashStore()
    store.set("a", "1")
    inner = m.distributed.PrefixStore("p", store)
    inner.set("b", "2")
    assert store.get("a") == b"1" and store.get("p/b") == b"2" and inner.get("b") == b"2"
    assert store.add("n", 2) == 2 and store.add("n", 3) == 5 and store.check(["a", "n"])


def test_without_a_group():
    for module in (flambeau, torch):
        assert not module.distributed.is_initialized()
        with pytest.raises(ValueError, match="init_process_group"):
            module.distributed.get_rank()
        with pytest.raises(ValueError):
            module.nn.parallel.DistributedDataParallel(module.nn.Linear(1, 1))


def test_the_first_version_of_fsdp_is_refused():
    from flambeau.distributed.fsdp import FullyShardedDataParallel
    with pytest.raises(NotImplementedError, match="fully_shard"):
        FullyShardedDataParallel(flambeau.nn.Linear(1, 1))


def test_twice(m):
    with pytest.raises(ValueError):
        m.distributed.init_process_group("gloo", rank=0, world_size=1)
