"""flambeau.multiprocessing: tensors shared between processes, failures of processes."""

from __future__ import annotations

import flambeau.multiprocessing as mp
import pytest
from leftovers import nothing_is_left  # noqa: F401 (a fixture of every test)
from spawned import add_one, fail_second, leave

import flambeau


# ------------------------------------------------------------------------------------------------------ multiprocessing
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_tensors_are_shared_through_queues(method):
    context = mp.get_context(method)
    tasks, answers = context.Queue(), context.Queue()
    shared, x = flambeau.ones(3).share_memory_(), flambeau.arange(6.0).reshape(2, 3).t()
    process = context.Process(target=add_one, args=(tasks, answers, shared))
    process.start()
    tasks.put(x)
    y = answers.get()
    tasks.put(None)
    process.join()
    assert y.tolist() == x.tolist() == [[1, 4], [2, 5], [3, 6]] and y.stride() == x.stride()
    assert shared.tolist() == [3, 3, 3] and shared.is_shared()
    for queue in (tasks, answers):
        queue.close()
        queue.join_thread()


def test_spawn_raises_the_first_failure():
    with pytest.raises(mp.ProcessRaisedException, match="ValueError: why") as caught:
        mp.start_processes(fail_second, ("why",), nprocs=2, start_method="fork")  # the first would not end by itself
    assert caught.value.error_index == 1
    with pytest.raises(mp.ProcessExitedException, match="exit code 4") as caught:
        mp.spawn(leave, nprocs=1)
    assert caught.value.exit_code == 4


def test_shared_parameters_keep_their_gradient():
    p = flambeau.nn.Parameter(flambeau.ones(3))
    p.share_memory_()
    (p * 2).sum().backward()
    assert p.grad.tolist() == [2, 2, 2] and p.is_shared()
    flambeau.optim.SGD([p], lr=1.0).step()
    assert p.is_shared() and p.tolist() == [-1, -1, -1]


def test_sharing_strategies():
    assert mp.get_all_sharing_strategies() == {"file_descriptor", "file_system"}
    mp.set_sharing_strategy("file_system")
    assert mp.get_sharing_strategy() == "file_system"
    mp.set_sharing_strategy("file_descriptor")
    with pytest.raises(AssertionError):
        mp.set_sharing_strategy("pigeon")
