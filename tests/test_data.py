"""Datasets, samplers and collating: the same samples, orders, batches and kinds of error as PyTorch."""

from __future__ import annotations

import collections
import copy

import numpy as np
import pytest
from compare import agree, agree_from_seed
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau
import flambeau.utils.data

Point = collections.namedtuple("Point", "x y")


# ----------------------------------------------------------------------------------------------------------- datasets
def tensors(mod, n=10):
    return mod.utils.data.TensorDataset(mod.arange(3 * n).reshape(n, 3).float(), mod.arange(n))


DATASETS = {
    "tensor item": lambda m: tensors(m)[3],
    "tensor slice": lambda m: tensors(m)[2:5],
    "tensor length": lambda m: len(tensors(m)),
    "tensor mismatch": lambda m: m.utils.data.TensorDataset(m.zeros(3), m.zeros(4)),
    "stack tuple": lambda m: m.utils.data.StackDataset(tensors(m), tensors(m))[4],
    "stack dict": lambda m: m.utils.data.StackDataset(a=tensors(m), b=range(10))[4],
    "stack items": lambda m: m.utils.data.StackDataset(a=tensors(m), b=range(10)).__getitems__([1, 2]),
    "stack items tuple": lambda m: m.utils.data.StackDataset(tensors(m), range(10)).__getitems__([1, 2]),
    "stack nothing": lambda m: m.utils.data.StackDataset(),
    "stack both": lambda m: m.utils.data.StackDataset(range(3), a=range(3)),
    "stack mismatch": lambda m: m.utils.data.StackDataset(range(3), range(4)),
    "concat": lambda m: [(tensors(m, 3) + tensors(m, 4))[i] for i in (0, 2, 3, 6, -1, -7)],
    "concat sizes": lambda m: m.utils.data.ConcatDataset([range(3), range(4), range(1)]).cumulative_sizes,
    "concat too negative": lambda m: m.utils.data.ConcatDataset([range(3)])[-4],
    "concat beyond": lambda m: m.utils.data.ConcatDataset([range(3)])[3],
    "concat nothing": lambda m: m.utils.data.ConcatDataset([]),
    "subset": lambda m: [m.utils.data.Subset(tensors(m), [4, 1, 7])[i] for i in (0, -1)],
    "subset list": lambda m: m.utils.data.Subset(tensors(m), [4, 1, 7])[[0, 2]],
    "subset items": lambda m: m.utils.data.Subset(tensors(m), [4, 1, 7]).__getitems__([0, 2]),
    "subset beyond": lambda m: m.utils.data.Subset(range(9), [4, 1])[2],
    "no getitem": lambda m: m.utils.data.Dataset()[0],
    "split": lambda m: [s.indices for s in m.utils.data.random_split(range(10), [3, 7])],
    "split fractions": lambda m: [s.indices for s in m.utils.data.random_split(range(11), [0.3, 0.3, 0.4])],
    "split generator": lambda m: [s.indices for s in m.utils.data.random_split(
        range(9), [4, 5], generator=m.Generator().manual_seed(3))],
    "split wrong sum": lambda m: m.utils.data.random_split(range(10), [3, 6]),
    "split wrong fraction": lambda m: m.utils.data.random_split(range(10), [1.5, -0.5]),
}


@pytest.mark.parametrize("case", DATASETS)
def test_datasets_are_pytorch_s(case):
    agree_from_seed(DATASETS[case], 7)


@pytest.mark.filterwarnings("ignore")
@settings(max_examples=25, deadline=None)
@given(st.integers(1, 40), st.lists(st.integers(1, 9), min_size=1, max_size=4))
def test_random_split_gives_pytorch_s_shares(total, weights):
    fractions = [w / sum(weights) for w in weights]
    agree_from_seed(lambda m: [s.indices for s in m.utils.data.random_split(range(total), fractions)], 7)


def test_iterable_datasets_chain():
    def run(m):
        class Count(m.utils.data.IterableDataset):
            def __init__(self, *args):
                self.numbers = range(*args)

            def __iter__(self):
                return iter(self.numbers)

            def __len__(self):
                return len(self.numbers)

        chain = Count(3) + Count(5, 7)
        return list(chain), len(chain), type(chain).__name__
    agree_from_seed(run, 7)
    agree_from_seed(lambda m: list(m.utils.data.ChainDataset([range(3)])), 7)


def test_a_subset_that_overrides_only_getitem_is_refused():
    def run(m):
        class Half(m.utils.data.Subset):
            def __getitem__(self, index):
                return 1
        return Half(range(4), [0])
    assert isinstance(agree_from_seed(run, 7), NotImplementedError)


# ----------------------------------------------------------------------------------------------------------- samplers
SAMPLERS = {
    "sequential": lambda d, m: d.SequentialSampler(range(5)),
    "random": lambda d, m: d.RandomSampler(range(50)),
    "random more": lambda d, m: d.RandomSampler(range(5), num_samples=13),
    "random fewer": lambda d, m: d.RandomSampler(range(50), num_samples=7),
    "random exact": lambda d, m: d.RandomSampler(range(5), num_samples=10, generator=m.default_generator),
    "random replaced": lambda d, m: d.RandomSampler(range(50), True, 70),
    "random replaced exact": lambda d, m: d.RandomSampler(range(50), True, 64),
    "random generator": lambda d, m: d.RandomSampler(range(50), generator=m.Generator().manual_seed(5)),
    "random empty": lambda d, m: d.RandomSampler([]),
    "random bad count": lambda d, m: d.RandomSampler(range(5), num_samples=0),
    "random bad flag": lambda d, m: d.RandomSampler(range(5), replacement=1),
    "subset": lambda d, m: d.SubsetRandomSampler([3, 8, 9, 2]),
    "subset generator": lambda d, m: d.SubsetRandomSampler([3, 8, 9], m.Generator().manual_seed(2)),
    "weighted": lambda d, m: d.WeightedRandomSampler([0.1, 0.9, 0.4, 3.0], 20),
    "weighted once": lambda d, m: d.WeightedRandomSampler([0.1, 0.9, 0.4, 3.0], 3, replacement=False),
    "weighted 2-d": lambda d, m: d.WeightedRandomSampler([[0.1, 0.9]], 3),
    "weighted bad count": lambda d, m: d.WeightedRandomSampler([0.1, 0.9], True),
    "weighted bad flag": lambda d, m: d.WeightedRandomSampler([0.1, 0.9], 1, 1),
    "batch": lambda d, m: d.BatchSampler(d.SequentialSampler(range(10)), 3, False),
    "batch whole": lambda d, m: d.BatchSampler(range(9), 3, False),
    "batch dropped": lambda d, m: d.BatchSampler(d.RandomSampler(range(10)), 3, True),
    "batch bad size": lambda d, m: d.BatchSampler(range(3), 0, False),
    "batch bad flag": lambda d, m: d.BatchSampler(range(3), 1, None),
    "distributed": lambda d, m: d.DistributedSampler(range(10), 3, 1),
    "distributed plain": lambda d, m: d.DistributedSampler(range(10), 3, 2, shuffle=False),
    "distributed dropped": lambda d, m: d.DistributedSampler(range(10), 3, 2, seed=9, drop_last=True),
    "distributed few": lambda d, m: d.DistributedSampler(range(2), 5, 4),
    "distributed bad rank": lambda d, m: d.DistributedSampler(range(10), 3, 3),
}


@pytest.mark.parametrize("case", SAMPLERS)
def test_samplers_give_pytorch_s_order(case):
    def run(m):
        sampler = SAMPLERS[case](m.utils.data, m)
        return list(sampler), len(sampler), list(sampler)
    agree_from_seed(run, 7)


def test_each_epoch_of_a_distributed_sampler_has_its_own_order():
    def run(m):
        sampler = m.utils.data.DistributedSampler(range(12), 2, 0)
        orders = []
        for epoch in range(3):
            sampler.set_epoch(epoch)
            orders.append(list(sampler))
        return orders
    agree_from_seed(run, 7)


def test_a_sampler_must_say_how_to_iterate():
    agree_from_seed(lambda m: list(m.utils.data.Sampler()), 7)


# --------------------------------------------------------------------------------------------------------- collating
BATCHES = {
    "tensors": lambda m: [m.tensor([1.0, 2.0]), m.tensor([3.0, 4.0])],
    "0-d tensors": lambda m: [m.tensor(1.0), m.tensor(2.0)],
    "empty tensors": lambda m: [m.zeros(0, 3), m.zeros(0, 3)],
    "strided tensors": lambda m: [m.arange(6).reshape(2, 3).t(), m.arange(6).reshape(3, 2)],
    "mixed types": lambda m: [m.tensor([1.0]), m.tensor([2])],
    "unequal tensors": lambda m: [m.zeros(2), m.zeros(3)],
    "arrays": lambda m: [np.arange(3), np.arange(3)],
    "array 0-d": lambda m: [np.array(1.5), np.array(2.5)],
    "numpy floats": lambda m: [np.float32(1), np.float32(2)],
    "numpy bools": lambda m: [np.bool_(True), np.bool_(False)],
    "string arrays": lambda m: [np.array(["a"]), np.array(["b"])],
    "object arrays": lambda m: [np.array([None]), np.array([None])],
    "ints": lambda m: [1, 2, 3],
    "bools": lambda m: [True, False],
    "floats": lambda m: [1.0, 2.0],
    "strings": lambda m: ["a", "b"],
    "bytes": lambda m: [b"a", b"b"],
    "dicts": lambda m: [{"a": 1, "b": "x"}, {"a": 2, "b": "y"}],
    "ordered": lambda m: [collections.OrderedDict(a=1.0), collections.OrderedDict(a=2.0)],
    "namedtuples": lambda m: [Point(1, m.zeros(2)), Point(2, m.ones(2))],
    "tuples": lambda m: [(1, 2.0), (3, 4.0)],
    "lists": lambda m: [[1, 2.0], [3, 4.0]],
    "ranges": lambda m: [range(2), range(2)],
    "nested": lambda m: [{"p": [1, (2, m.ones(1))]}, {"p": [3, (4, m.zeros(1))]}],
    "unequal lists": lambda m: [[1, 2], [3]],
    "none": lambda m: [None, None],
    "objects": lambda m: [object(), object()],
    "missing key": lambda m: [{"a": 1}, {"b": 2}],
}


@pytest.mark.parametrize("case", BATCHES)
def test_default_collate_is_pytorch_s(case):
    agree_from_seed(lambda m: m.utils.data.default_collate(BATCHES[case](m)), 7)


@pytest.mark.parametrize("case", [case for case in BATCHES if case != "objects"])
def test_default_convert_is_pytorch_s(case):
    agree_from_seed(lambda m: m.utils.data.default_convert(BATCHES[case](m)), 7)


def test_a_batch_of_a_mapping_keeps_what_else_the_mapping_carries():
    def run(m):
        sample = collections.defaultdict(lambda: 5, a=1)
        made = m.utils.data.default_collate([sample, copy.copy(sample)])
        return type(made).__name__, made["a"], made["missing"]
    agree_from_seed(run, 7)


def test_collating_keeps_the_graph():
    x = flambeau.ones(3, requires_grad=True)
    batch = flambeau.utils.data.default_collate([x * 2, x * 3])
    batch.sum().backward()
    assert x.grad.tolist() == [5, 5, 5]


def test_types_of_one_s_own_can_be_collated():
    def run(m):
        class Thing:
            def __init__(self, n):
                self.n = n

        from_module = m.utils.data._utils.collate
        return from_module.collate([Thing(1), Thing(2)], collate_fn_map={
            Thing: lambda batch, *, collate_fn_map=None: sum(t.n for t in batch)})
    assert agree_from_seed(run, 7) == 3


def test_internals_are_found_where_programs_look_for_them():
    from flambeau._utils import ExceptionWrapper
    from flambeau.utils.data._utils.collate import default_collate

    from flambeau.utils.data.dataloader import default_collate as second
    from flambeau.utils.data.distributed import DistributedSampler

    assert ExceptionWrapper.reraise
    assert default_collate is second is flambeau.utils.data.default_collate
    assert DistributedSampler is flambeau.utils.data.DistributedSampler
    with pytest.raises(NotImplementedError, match="DFIterDataPipe"):
        _ = flambeau.utils.data.DFIterDataPipe


@pytest.mark.filterwarnings("ignore:Local function")
def test_simple_pipes():
    def run(m):
        import importlib
        pipes = importlib.import_module(m.__name__ + ".utils.data.datapipes")
        pipe = pipes.iter.IterableWrapper(range(10)).map(lambda x: x * x).filter(lambda x: x % 2 == 0)
        batched = pipe.batch(2)
        both_ways = pipes.map.SequenceWrapper([1, 2, 3]).map(str)
        return (list(pipe), [list(b) for b in batched], len(pipes.iter.IterableWrapper([1, 2, 3]).batch(2)),
                list(pipe.concat(pipes.iter.IterableWrapper([7]))),
                [both_ways[i] for i in range(3)], isinstance(pipe, m.utils.data.IterDataPipe),
                [b.tolist() for b in m.utils.data.DataLoader(pipe, batch_size=2)])
    agree(run)
    with pytest.raises(AttributeError, match="shuffle"):
        flambeau.utils.data.datapipes.iter.IterableWrapper([1]).shuffle()
