"""Sparse tensors in coordinate form, and the optimizers that apply them by row."""

import subprocess
import sys

import pytest
from compare import agree_in_words

import flambeau

MAKE = dict(
    matrix=lambda t: t.sparse_coo_tensor(t.tensor([[0, 2, 0], [1, 0, 1]]), t.tensor([1.0, 2.0, 3.0]), (3, 2)),
    rows=lambda t: t.sparse_coo_tensor(t.tensor([[2, 0, 2]]), t.arange(6.0).reshape(3, 2), (4, 2)),
    lists=lambda t: t.sparse_coo_tensor([[0, 1], [1, 0]], [3.0, 4.0]),
    empty=lambda t: t.sparse_coo_tensor((2, 3)),
    dense=lambda t: t.tensor([[0.0, 1.0], [2.0, 0.0]]).to_sparse(),
    dense_rows=lambda t: t.tensor([[0.0, 1.0], [0.0, 0.0]]).to_sparse(1),
)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", MAKE)
def test_what_it_holds(name):
    def program(torch):
        s = MAKE[name](torch)
        c = s.coalesce()
        return (s.is_sparse, str(s.layout), s.shape, s.dtype.__repr__().split(".")[-1], s._nnz(), s.sparse_dim(),
                s.dense_dim(), s.is_coalesced(), s._indices(), s._values(), c.indices(), c.values(), s.to_dense(), repr(s),
                repr(c), len(s.shape), s.numel())

    agree_in_words(program, warned=False)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("program", [
    lambda t, s: (s + s).to_dense(), lambda t, s: (s * 3).to_dense(), lambda t, s: (s / 2).to_dense(),
    lambda t, s: (-s).to_dense(), lambda t, s: (t.ones(3, 2) + s), lambda t, s: t.ones(3, 2).add_(s, alpha=-0.5),
    lambda t, s: (s - s).to_dense(), lambda t, s: s.clone().mul_(2).to_dense(), lambda t, s: s.t().to_dense(),
    lambda t, s: t.sparse.mm(s, t.ones(2, 4)), lambda t, s: s @ t.ones(2, 4), lambda t, s: t.mm(s, t.ones(2, 4)),
    lambda t, s: t.spmm(s, t.ones(2, 4)), lambda t, s: t.sparse.sum(s), lambda t, s: s.sum(),
    lambda t, s: s.clone().zero_().to_dense(), lambda t, s: s.double().dtype.__repr__()[-7:],
    lambda t, s: s.detach().to_dense(), lambda t, s: s[0].to_dense() if s[0].is_sparse else s[0],
    lambda t, s: s.indices(), lambda t, s: s.values(), lambda t, s: s + t.ones(3), lambda t, s: s.numpy(),
])
def test_operations(program):
    agree_in_words(lambda torch: program(torch, MAKE["matrix"](torch)), text=False, warned=False)


@pytest.mark.parametrize("call", [
    lambda t: t.sparse_coo_tensor([[0, 5]], [1.0, 2.0], (3,), check_invariants=True),
    lambda t: t.sparse_coo_tensor([[0, -1]], [1.0, 2.0], (3,), check_invariants=True),
    lambda t: t.sparse_coo_tensor([[0, 1]], [1.0], (3,)), lambda t: t.sparse_coo_tensor([0, 1], [1.0, 2.0], (3,)),
])
def test_refusals(call):
    agree_in_words(call, text=False, warned=False)


def test_what_is_missing_says_so():
    s = MAKE["matrix"](flambeau)
    with pytest.raises(NotImplementedError, match="sparse"):
        s.cos()
    with pytest.raises(NotImplementedError, match="sparse"):
        flambeau.ones(2, 2).to_sparse_csr().cos()


def test_products_have_derivatives():
    def program(torch):
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        out = torch.sparse.mm(MAKE["matrix"](torch), x)
        (out * out).sum().backward()
        return out, x.grad

    agree_in_words(program, warned=False)


def train(torch, make, steps=4):
    torch.manual_seed(0)
    table = torch.nn.Embedding(10, 3, sparse=True, padding_idx=2)
    bag = torch.nn.EmbeddingBag(10, 3, sparse=True, mode="mean")
    optimizer = make(torch)([*table.parameters(), *bag.parameters()])
    losses = []
    for k in range(steps):
        optimizer.zero_grad()
        loss = (table(torch.tensor([1, 2, 1, k])) ** 2).sum() + (bag(torch.tensor([[1, 3], [k, 5]])) ** 3).sum()
        loss.backward()
        losses.append(loss)
        assert table.weight.grad.is_sparse and bag.weight.grad.is_sparse
        optimizer.step()
    return losses, table.weight, bag.weight, table.weight.grad.coalesce().values(), table.weight.grad.to_dense()


@pytest.mark.parametrize("make", [
    lambda t: lambda p: t.optim.SGD(p, lr=0.1), lambda t: lambda p: t.optim.SGD(p, lr=0.1, momentum=0.9),
    lambda t: lambda p: t.optim.Adagrad(p, lr=0.1), lambda t: lambda p: t.optim.SparseAdam(p, lr=0.1),
    lambda t: lambda p: t.optim.SparseAdam(p, lr=0.1, maximize=True), lambda t: lambda p: t.optim.Adam(p)])
def test_optimizers_follow_pytorch(make):
    agree_in_words(lambda torch: train(torch, make), text=False, warned=False, tolerance=1e-5)


def test_gradients_add_up():
    def program(torch):
        torch.manual_seed(0)
        table = torch.nn.Embedding(5, 2, sparse=True)
        for _ in range(2):
            (table(torch.tensor([1, 1, 3])).sum() + table(torch.tensor([0])).sum()).backward()
        plain = torch.nn.Embedding(5, 2, sparse=True)
        (plain(torch.tensor([1])).sum() + plain.weight.sum()).backward()  # sparse and dense meet
        return table.weight.grad.to_dense(), plain.weight.grad

    agree_in_words(program, warned=False)


def test_sparse_adam_refuses_dense_gradients():
    def program(torch):
        p = torch.nn.Parameter(torch.ones(2))
        p.grad = torch.ones(2)
        torch.optim.SparseAdam([p]).step()

    agree_in_words(program)


STEPS = """
import ctypes, os, resource
import flambeau

ROWS, USED = 4_000_000, 500
table = flambeau.nn.Embedding.from_pretrained(flambeau.zeros(ROWS, 32), freeze=False, sparse=True)
optimizers = [flambeau.optim.SGD(table.parameters(), lr=0.1), flambeau.optim.SparseAdam(table.parameters())]

def step():
    for optimizer in optimizers:
        optimizer.zero_grad()
        table(flambeau.arange(0, USED)).sum().backward()
        optimizer.step()

step()  # makes the state
for t in [table.weight, *[v for v in optimizers[1].state[table.weight].values() if getattr(v, "ndim", 0) == 2]]:
    start = t.data_ptr() + USED * 128 + 4095 & ~4095
    end = t.data_ptr() + ROWS * 128 & ~4095
    assert ctypes.CDLL(None).mprotect(ctypes.c_void_p(start), ctypes.c_size_t(end - start), 0) == 0
pages = int(open("/proc/self/statm").read().split()[0])
resource.setrlimit(resource.RLIMIT_AS, (pages * 4096 + ROWS * 32, -1))  # too little for a gradient of every row
for _ in range(3):
    step()
print(table.weight[0, 0].item(), flush=True)
os._exit(0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="asks Linux to guard memory")
def test_a_step_does_not_grow_with_the_vocabulary():
    """It neither reads nor writes other rows than its own (that would end the process), nor makes anything of their number."""
    done = subprocess.run([sys.executable, "-c", STEPS], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) < -0.4
