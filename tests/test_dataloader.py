"""DataLoader: PyTorch's batches from one seed, with and without workers; errors, deaths and ends leave nothing."""

from __future__ import annotations

import contextlib
import gc
import multiprocessing
import os
import pickle
import random
import select
import signal
import subprocess
import sys
import time
import warnings

import numpy as np
import pytest
import torch
import torch.utils.data
from compare import agree_from_seed
from leftovers import abandoned, nothing_is_left, soon  # noqa: F401 (a fixture of every test)
from spawned import Squares

import flambeau
from flambeau.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset, get_worker_info

MODULES = (flambeau, torch)


class Gate:
    """Forked workers wait at it until the test opens it: what they do takes as long as the test wants. (An Event of
    multiprocessing would have `set` wait for workers that were killed at it.)"""

    def __init__(self):
        self.ends = os.pipe()

    def wait(self, limit=None):
        select.select([self.ends[0]], [], [], limit)

    def open(self):
        os.write(self.ends[1], b"!")


@pytest.fixture
def gate():
    made = Gate()
    yield made
    for end in made.ends:
        os.close(end)


@pytest.fixture
def no_grace(monkeypatch):
    """Workers that wait at a gate are terminated without further delay."""
    monkeypatch.setattr(flambeau.utils.data.iterators, "GRACE", 0.1)


def rows(mod, n=22):
    return mod.utils.data.TensorDataset(mod.arange(3 * n).reshape(n, 3).float(), mod.arange(n))


class Stream(IterableDataset):
    def __init__(self, n=10, sharded=True):
        self.n, self.sharded = n, sharded

    def __iter__(self):
        info = get_worker_info()
        if info is None or not self.sharded:
            return iter(range(self.n))
        return iter(range(info.id, self.n, info.num_workers))


# ------------------------------------------------------------------------------------------------- the same as PyTorch
ORDERS = {
    "plain": {"batch_size": 4},
    "one by one": {},
    "shuffled": {"batch_size": 4, "shuffle": True},
    "dropped": {"batch_size": 4, "shuffle": True, "drop_last": True},
    "no batches": {"batch_size": None},
    "no batches, shuffled": {"batch_size": None, "shuffle": True},
    "batch sampler": {"batch_sampler": [[3, 1], [2], [0, 5, 6]]},
    "sampler": {"sampler": [4, 2, 9], "batch_size": 2},
    "out of range": {"sampler": [1, 99], "batch_size": 2},
    "collate": {"batch_size": 4, "collate_fn": len},
}


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("case", ORDERS)
def test_batches_and_random_numbers_used_are_pytorch_s(case, workers):
    if case == "out of range" and workers:
        pytest.skip("PyTorch takes five seconds to end its workers after an exception")

    def run(m):
        loader = m.utils.data.DataLoader(rows(m), num_workers=workers, **ORDERS[case])
        return list(loader), len(loader), list(loader)
    agree_from_seed(run, 11)


def test_a_generator_of_one_s_own_gives_pytorch_s_order():
    def run(m):
        g = m.Generator().manual_seed(3)
        loader = m.utils.data.DataLoader(rows(m), 5, shuffle=True, generator=g)
        return list(loader), list(loader), g.get_state().sum()
    agree_from_seed(run, 11)


def test_a_subset_of_a_tensor_dataset_gives_pytorch_s_batches():
    def run(m):
        part, _ = m.utils.data.random_split(rows(m), [15, 7])
        return list(m.utils.data.DataLoader(part, 4, shuffle=True))
    agree_from_seed(run, 11)


WRONG = {
    "workers": dict(num_workers=-1), "timeout": dict(timeout=-1), "prefetch": dict(prefetch_factor=2),
    "negative prefetch": dict(num_workers=1, prefetch_factor=-1), "persistent": dict(persistent_workers=True),
    "sampler and shuffle": dict(sampler=[1], shuffle=True), "batch sampler": dict(batch_sampler=[[1]], batch_size=2),
    "batch sampler dropped": dict(batch_sampler=[[1]], drop_last=True),
    "no batch": dict(batch_size=None, drop_last=True),
    "zero batch": dict(batch_size=0), "context": dict(multiprocessing_context="fork"),
    "unknown context": dict(num_workers=1, multiprocessing_context="x"),
    "no context": dict(num_workers=1, multiprocessing_context=3),
    "timeout without workers": dict(timeout=1),
}


@pytest.mark.parametrize("case", WRONG)
def test_arguments_are_refused_as_pytorch_does(case):
    result = agree_from_seed(lambda m: list(m.utils.data.DataLoader(rows(m), **WRONG[case])), 11)
    assert isinstance(result, Exception)


@pytest.mark.parametrize("options", [dict(shuffle=True), dict(sampler=[1]), dict(batch_sampler=[[1]])])
def test_a_stream_takes_no_order(options):
    with pytest.raises(ValueError, match="IterableDataset: expected unspecified"):
        DataLoader(Stream(), **options)
    DataLoader(Stream(), shuffle=False)


def test_settings_stay_as_they_are():
    loader = DataLoader(rows(flambeau), 2)
    for name in ("batch_size", "sampler", "drop_last", "dataset", "batch_sampler", "persistent_workers"):
        with pytest.raises(ValueError, match="should not be set after DataLoader is initialized"):
            setattr(loader, name, 3)
    loader.num_workers = 1


def test_pin_memory_is_accepted_with_a_warning():
    loader = DataLoader(rows(flambeau), 20, pin_memory=True)
    with pytest.warns(UserWarning, match="no accelerator"):
        assert len(list(loader)) == 2


def test_more_workers_than_processors_warn():
    with pytest.warns(UserWarning, match="worker processes in total"):
        DataLoader(rows(flambeau), num_workers=999)


def test_an_iterator_cannot_be_pickled():
    with pytest.raises(NotImplementedError):
        pickle.dumps(iter(DataLoader(rows(flambeau))))


# ------------------------------------------------------------------------------------------------------ what arrives
def test_batches_arrive_through_shared_memory_and_are_one_s_own():
    loader = DataLoader(Squares(), 4, num_workers=2)
    batches = list(loader)
    for i, (x, y) in enumerate(batches):
        assert x.is_shared() and x.is_contiguous()
        assert x[:, 7].tolist() == [4 * i, 4 * i + 1, 4 * i + 2, 4 * i + 3]
        x.fill_(i)
        assert y.tolist() == [j * j for j in range(4 * i, 4 * i + 4)]
    assert [x.mean().item() for x, _ in batches] == [0, 1, 2, 3, 4]  # writing one did not touch the others


def test_memory_is_used_again_once_a_batch_is_forgotten():
    seen = set()
    for x, _ in DataLoader(Squares(200), 4, num_workers=1):
        seen.add(x.data_ptr())
        assert (x[:, 0] == x[:, -1]).all()
    assert len(seen) < 12


def kinds(_):
    x = flambeau.arange(6000).reshape(2, 3000)
    return {"transposed": x.t(), "view": x[:, 1:], "half": x.to(flambeau.bfloat16), "complex": x.to(flambeau.complex64),
            "small": flambeau.tensor(3.0), "empty": flambeau.zeros(0, 4), "leaf": flambeau.ones(2000).requires_grad_(),
            "parameter": flambeau.nn.Parameter(flambeau.ones(3000)), "array": np.arange(9000).reshape(3, 3000),
            "text": "x" * 300000, "same": (x, x), "bool": x > 3}


def test_all_kinds_of_tensors_survive_the_journey():
    (got,) = DataLoader([0], batch_size=None, collate_fn=kinds, num_workers=1)
    want = kinds(0)
    for name in ("transposed", "view", "half", "complex", "small", "empty", "leaf", "parameter", "bool"):
        a, b = got[name], want[name]
        assert type(a) is type(b) and a.dtype == b.dtype and a.shape == b.shape and a.requires_grad == b.requires_grad
        assert a.equal(b), name
    assert got["transposed"].stride() == want["transposed"].stride()
    assert np.array_equal(got["array"], want["array"]) and got["array"].flags.writeable
    assert got["text"] == want["text"]
    assert got["same"][0] is got["same"][1]


def test_large_indices_and_results_do_not_block_each_other():
    class Big(Dataset):
        def __getitem__(self, index):
            return "y" * 400000

    orders = [list(range(60000))] * 6
    loader = DataLoader(Big(), batch_sampler=orders, collate_fn=len, num_workers=1, prefetch_factor=6)
    loader.dataset.__class__.__getitems__ = lambda self, indices: ["y" * 400000] * len(indices[:2])
    assert list(loader) == [2] * 6
    loader = DataLoader(Big(), batch_sampler=orders, collate_fn=list, num_workers=1, prefetch_factor=6)
    assert [len(b[0]) for b in loader] == [400000] * 6


def test_many_batches_can_be_kept():
    """One descriptor per batch would run into the limit of open files."""
    kept = list(DataLoader(Squares(1500, 1100), 1, num_workers=2))
    assert len(kept) == 1500 and kept[1499][0][0, 5].item() == 1499


@pytest.mark.parametrize("prefetch", [1, 3, 50])
def test_order_is_kept_whatever_the_prefetching(prefetch):
    slow = Squares(40, 10, lambda i: time.sleep(0.002 * (i % 3)))
    loader = DataLoader(slow, 2, num_workers=2, prefetch_factor=prefetch)
    assert [int(x[0, 0]) for x, _ in loader] == list(range(0, 40, 2))


def test_without_order_a_slow_sample_does_not_hold_up_the_others(gate):
    got = []
    for x, _ in DataLoader(Squares(12, 10, lambda i: i or gate.wait(100)), 1, num_workers=2, in_order=False):
        got.append(int(x[0, 0]))
        if len(got) == 5:
            gate.open()
    assert sorted(got) == list(range(12)) and 0 not in got[:5]


# -------------------------------------------------------------------------------------------------------- iterable ones
@pytest.mark.parametrize("workers", [0, 1, 2])
@pytest.mark.parametrize("options", [dict(batch_size=3), dict(batch_size=3, drop_last=True), dict(batch_size=None)])
def test_streams_are_shared_out_among_workers_as_in_pytorch(workers, options):
    def run(m):
        data = m.utils.data

        class Sharded(data.IterableDataset):
            def __iter__(self):
                info = data.get_worker_info()
                return iter(range(11)) if info is None else iter(range(info.id, 11, info.num_workers))

        return list(data.DataLoader(Sharded(), num_workers=workers, **options))
    agree_from_seed(run, 11)


@pytest.mark.parametrize("in_order", [True, False])
def test_workers_with_streams_of_unequal_length(in_order):
    class Uneven(IterableDataset):
        def __iter__(self):
            return iter(range((0, 7, 3)[get_worker_info().id]))

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loader = DataLoader(Uneven(), batch_size=None, num_workers=3, in_order=in_order, persistent_workers=True)
        for _ in range(2):
            assert sorted(loader) == sorted([*range(7), *range(3)])


def test_a_stream_longer_than_promised_warns():
    class Short(Stream):
        def __len__(self):
            return 3

    for workers in (0, 2):
        loader = DataLoader(Short(5, sharded=False), batch_size=None, num_workers=workers)
        assert len(loader) == 3
        with pytest.warns(UserWarning, match="was reported to be 3"):
            assert len(list(loader)) == 5 * max(workers, 1)


def test_lengths():
    assert len(DataLoader(range(10), 3)) == 4 and len(DataLoader(range(10), 3, drop_last=True)) == 3
    with pytest.raises(TypeError):
        len(DataLoader(Stream()))


# ----------------------------------------------------------------------------------------------- seeds and worker info
def randoms(mod):
    def collate(_):
        return int(mod.initial_seed()), mod.rand(2), random.random(), float(np.random.rand()), mod.get_num_threads()
    return collate


def test_workers_have_pytorch_s_seeds_and_one_thread():
    got = agree_from_seed(lambda m: list(m.utils.data.DataLoader(range(4), 1, num_workers=2, collate_fn=randoms(m))), 11)
    assert got[0] != got[1] and got[0][4] == 1


def test_worker_info_and_init_function():
    def note(worker_id):
        info = get_worker_info()
        info.dataset.extra = 100 * worker_id
        assert info.id == worker_id and info.num_workers == 2 and info.seed == flambeau.initial_seed()
        with pytest.raises(RuntimeError, match="Cannot assign"):
            info.id = 5
        assert repr(info).startswith(f"WorkerInfo(id={worker_id}, num_workers=2, seed=")

    class Extra(Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, index):
            return index + self.extra

    assert get_worker_info() is None
    loader = DataLoader(Extra(), 1, num_workers=2, worker_init_fn=note)
    assert [b.item() for b in loader] == [0, 101, 2, 103, 4, 105]


def test_operations_on_large_tensors_work_in_workers():
    flambeau.ones(1 << 20).add(1)  # the helper threads of this process are running, and do not survive a fork

    class Large(Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return ((flambeau.ones(1 << 20) * 2 + index).sum() + (flambeau.ones(80, 80) @ flambeau.ones(80, 80)).sum())

    assert [b.item() for b in DataLoader(Large(), 1, num_workers=2)] == [2097152 + 512000, 3145728 + 512000]


def test_persistent_workers_live_through_epochs():
    loader = DataLoader(Squares(12, 1500), 2, shuffle=True, num_workers=2, persistent_workers=True)
    pids = set()
    for _ in range(3):
        seen = sorted(int(v) for x, _ in loader for v in x[:, 0])
        assert seen == list(range(12))
        pids.add(tuple(p.pid for p in loader._iterator._workers))
    next(iter(loader))  # leaving early and starting again
    assert sorted(int(v) for x, _ in loader for v in x[:, 0]) == list(range(12))
    pids.add(tuple(p.pid for p in loader._iterator._workers))
    assert len(pids) == 1


def test_persistent_workers_use_pytorch_s_random_numbers():
    def run(m):
        loader = m.utils.data.DataLoader(rows(m), 8, shuffle=True, num_workers=1, persistent_workers=True)
        return [list(loader) for _ in range(3)]
    agree_from_seed(run, 11)


def test_persistent_workers_start_streams_again():
    loader = DataLoader(Stream(7), batch_size=2, num_workers=2, persistent_workers=True)
    assert [sorted(int(v) for b in loader for v in b) for _ in range(3)] == [list(range(7))] * 3


def test_spawned_workers():
    loader = DataLoader(Squares(6), 2, num_workers=1, multiprocessing_context="spawn")
    assert [x[:, 3].tolist() for x, _ in loader] == [[0, 1], [2, 3], [4, 5]]


# ---------------------------------------------------------------------------------------------------------- what fails
def fails_with(error):
    def action(index):
        if index == 5:
            raise error
    return action


class Awkward(Exception):
    def __init__(self, a, b):
        super().__init__(a)


@pytest.mark.parametrize("error,kind", [(ValueError("bad"), ValueError), (KeyError("k"), KeyError),
                                        (Awkward(1, 2), RuntimeError), (StopIteration(), StopIteration),
                                        (OSError(2, "gone"), OSError), (SystemError("s"), SystemError)])
def test_an_exception_arrives_with_its_type_and_traceback(error, kind):
    loader = iter(DataLoader(Squares(12, 10, fails_with(error)), 2, num_workers=2))
    next(loader), next(loader)
    with pytest.raises(kind) as caught:
        next(loader)
    text = str(caught.value)
    assert f"Caught {type(error).__name__} in DataLoader worker process 0.\nOriginal Traceback" in text
    assert "in action\n    raise error" in text.replace("if index == 5:\n", "")
    assert next(loader)[1].tolist() == [36, 49]  # the others go on


def test_what_cannot_be_pickled_is_an_error_not_a_hang():
    loader = DataLoader(range(3), collate_fn=lambda b: (lambda: b), num_workers=1)
    with pytest.raises(Exception, match="Caught .* in DataLoader worker process 0"):
        list(loader)

    class Local(Exception):
        pass

    loader = DataLoader(Squares(9, 1, fails_with(Local("inside"))), num_workers=1)
    with pytest.raises(RuntimeError, match="inside"):
        list(loader)


class Unwelcome:
    """Can be sent, but not received."""

    def __reduce__(self):
        return int, ("not a number",)


def test_what_cannot_be_unpickled_is_an_error_not_a_hang():
    iterator = iter(DataLoader(range(3), collate_fn=lambda b: Unwelcome(), num_workers=1))
    with pytest.raises(ValueError, match="not a number"):
        next(iterator)
    with pytest.raises(StopIteration):
        next(iterator)


def test_batches_of_varying_size():
    def ragged(batch):
        return [flambeau.full((700 + 100 * (i % 7), 3), float(i)) for i in batch]
    for i, (x,) in enumerate(DataLoader(range(60), 1, collate_fn=ragged, num_workers=2)):
        assert x.shape == (700 + 100 * (i % 7), 3) and (x == i).all() and x.untyped_storage().nbytes() == x.nbytes


def test_tensors_with_a_history_do_not_travel():
    loader = DataLoader(range(3), collate_fn=lambda b: flambeau.ones(2, requires_grad=True) * 2, num_workers=1)
    with pytest.raises(RuntimeError, match="non-leaf"):
        list(loader)


def test_a_failing_init_function_is_reported():
    def init(worker_id):
        raise ValueError("no start")
    with pytest.raises(ValueError, match="no start"):
        list(DataLoader(range(3), num_workers=1, worker_init_fn=init))


def test_timeout(gate, no_grace):
    iterator = iter(DataLoader(Squares(2, 1, lambda i: gate.wait()), num_workers=1, timeout=0.2))
    with pytest.raises(RuntimeError, match=r"timed out after 0\.2 seconds"):
        next(iterator)


class Watched:
    """What an iterator waits with, noting for how long it would have waited if nothing had happened."""

    def __init__(self, poll):
        self.inner, self.limits = poll, set()

    def poll(self, limit):
        self.limits.add(limit)
        return self.inner.poll(limit)


def wait_with_a_note(iterator):
    iterator._poll = Watched(iterator._poll)
    return iterator._poll.limits


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("how", [lambda: os.kill(os.getpid(), signal.SIGKILL), lambda: os._exit(3)])
def test_a_killed_worker_is_reported_at_once(how, persistent):
    def action(index):
        if index == 7:
            how()
    loader = DataLoader(Squares(40, 10, action), 2, num_workers=2, persistent_workers=persistent)
    iterator = iter(loader)
    limits = wait_with_a_note(iterator)
    with pytest.raises(RuntimeError, match=r"DataLoader worker \(pid\(s\) \d+\) exited unexpectedly"):
        list(iterator)
    assert limits == {None}  # the death itself ended the wait
    loader.dataset.action = None
    assert len(list(loader)) == 20  # and can be started again


def test_a_worker_killed_from_outside_while_it_is_waited_for(gate, no_grace):
    iterator = iter(DataLoader(Squares(40, 10, lambda i: i < 2 or gate.wait()), 1, num_workers=2))
    next(iterator), next(iterator)
    limits = wait_with_a_note(iterator)
    os.kill(iterator._workers[1].pid, signal.SIGKILL)
    with pytest.raises(RuntimeError, match="SIGKILL"):
        next(iterator)
    assert limits == {None}


def test_leaving_the_loop_ends_the_workers():
    loader = DataLoader(Squares(100), 2, num_workers=2)
    for batch in loader:
        x = batch[0]
        break
    gc.collect()
    assert not multiprocessing.active_children()
    assert x.shape == (2, 2000) and x.sum().item() == 2000  # the batch lives on

    with pytest.raises(ZeroDivisionError):
        for _ in loader:
            _ = 1 / 0
    gc.collect()
    assert not multiprocessing.active_children()


PROGRAM = """
import os, signal, time
signal.signal(signal.SIGINT, signal.default_int_handler)  # who starts tests in the background may have it ignored
import flambeau as torch
from flambeau.utils.data import DataLoader, Dataset, worker
run = worker.run
def starting(job, line):
    if START == "slow" and job.worker_id:
        print(os.getpid(), flush=True)
        time.sleep(0.5)  # interrupted here, it hears of it when it is ready
    run(job, line)
worker.run = starting
class Slow(Dataset):
    def __len__(self): return 1000
    def __getitem__(self, i):
        time.sleep(0.01)
        return torch.full((5000,), float(i))
loader = iter(DataLoader(Slow(), 4, num_workers=2))
next(loader)
if START != "slow":
    print(*[p.pid for p in loader._workers], flush=True)
for batch in loader:
    pass
"""


@pytest.mark.parametrize("how,start", [(signal.SIGINT, ""), (signal.SIGINT, "slow"), (signal.SIGTERM, ""),
                                       (signal.SIGKILL, "")])
def test_killing_the_main_process_leaves_nothing(how, start):
    before = set(os.listdir("/dev/shm"))
    program = subprocess.Popen([sys.executable, "-c", f"START = {start!r}\n{PROGRAM}"], stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True, cwd=os.path.dirname(os.path.dirname(__file__)),
                               start_new_session=True)
    pids = [int(p) for p in program.stdout.readline().split()]
    if how is signal.SIGINT:
        os.killpg(program.pid, how)  # as the terminal does
    else:
        program.send_signal(how)
    _, err = program.communicate()  # until the workers have closed their ends, too
    assert len(pids) == (1 if start else 2), err
    assert soon(lambda: not alive(pids))
    assert soon(lambda: not abandoned(before)), abandoned(before)
    if how is signal.SIGINT:
        assert err.count("Traceback") == 1 and err.strip().endswith("KeyboardInterrupt"), err


def alive(pids):
    found = []
    for p in pids:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            if open(f"/proc/{p}/stat").read().rpartition(")")[2].split()[0] != "Z":
                found.append(p)
    return found


def test_a_tensor_dataset_takes_the_quick_way_only_where_it_is_the_same():
    leaf = flambeau.arange(12.0).reshape(4, 3).requires_grad_()
    (batch,) = next(iter(DataLoader(TensorDataset(leaf), 2)))
    assert batch.grad_fn is not None

    class Doubled(TensorDataset):
        def __getitem__(self, index):
            return tuple(2 * t for t in super().__getitem__(index))

    (batch,) = next(iter(DataLoader(Doubled(flambeau.ones(4, 3)), 2)))
    assert batch.tolist() == [[2, 2, 2]] * 2
