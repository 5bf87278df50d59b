"""What the compiler makes of a training step on a CUDA device: conversions that kernels do themselves, results that are made
where they belong, even products, memory that is planned. Each program gives the plain one's results to the bit.

(The host that plays a GPU adds up products in double precision, so that zeros around a matrix change nothing.)
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from cuda_host import needs_gxx
from cuda_programs import draw, kernels, program

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.backends.cuda import driver, fitted, graphs
from flambeau.backends.cuda.branches import Part, waits
from flambeau.compiler.passes import flat
from flambeau.compiler.passes.arena import laid_out
from flambeau.compiler.run import graphed

pytestmark = needs_gxx


@pytest.fixture(autouse=True)
def device(cuda):
    """Every test is on a CUDA device."""


def words(*shape, most, seed=0):
    return torch.from_numpy(np.random.default_rng(seed).integers(0, most, shape)).cuda()


def same(got, wanted):
    exact = not isinstance(driver.machine(), driver.Machine)
    for g, w in zip(got, wanted, strict=True):
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
        if exact:
            np.testing.assert_array_equal(g.detach().float().cpu().numpy(), w.detach().float().cpu().numpy())
        else:
            torch.testing.assert_close(g, w, equal_nan=True, rtol=2e-2, atol=2e-2)


def agree(build, given, mode=None):
    """Calls what build() gives, a function and one that gives the tensors to look at, plainly and compiled; the compiled."""
    (plain, wanted), (function, got) = build(), build()
    compiled = torch.compile(function, mode=mode)
    for args in given:
        a, b = compiled(*args), plain(*args)
        same([*(a if isinstance(a, tuple) else (a,)), *got()], [*(b if isinstance(b, tuple) else (b,)), *wanted()])
    return compiled


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        b, n, c = x.shape
        q, k, v = [z.view(b, n, self.heads, c // self.heads).transpose(1, 2) for z in self.qkv(self.ln1(x)).split(c, 2)]
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, n, c)
        x = x + self.out(y)
        return x + self.down(F.gelu(self.up(self.ln2(x)), approximate="tanh"))


@pytest.mark.parametrize("kept", [1 << 26, 1 << 9])
def test_a_gpt_step(kept, monkeypatch):
    monkeypatch.setattr(fitted, "_WORTH", 1)
    monkeypatch.setattr(flat, "_KEPT", kept)
    given = [(words(2, 8, most=45, seed=2 * n), words(2, 8, most=45, seed=2 * n + 1)) for n in range(4)]

    def build():
        torch.manual_seed(1)
        model = nn.Sequential(nn.Embedding(45, 16), Block(16, 2), Block(16, 2), nn.LayerNorm(16),
                              nn.Linear(16, 45, bias=False)).cuda()
        optimizer = optim.AdamW(model.parameters(), 1e-2)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x).view(-1, 45), y.view(-1))
            loss.backward()
            optimizer.step()
            return loss
        return step, lambda: [t for p in model.parameters() for t in (p, p.grad)]
    compiled = agree(build, given)
    found = kernels(compiled)
    assert "logits_loss" in found and "cross_entropy" not in found and "cat" not in found
    assert program(compiled).arena is not None
    logits = next(op for op in program(compiled).ops if op.kernel == "logits_loss").args[0]
    assert logits.dtype.itemsize == 2 and logits.strides == (48, 1)
    back = next(op for op in program(compiled).ops if op.kernel == "logits_loss_backward")
    assert back.outs[0].storage is back.args[1].storage is logits.storage
    groups = [op.args[0].text for op in program(compiled).ops if op.kernel == "fused"]
    assert sum(["gelu, cast, cast, gelu_backward" in text for text in groups]) == (2 if kept < 1 << 26 else 0)


def loss_of(x, y, **options):
    return F.cross_entropy(x.float(), y, **options)


LOSSES = {
    "mean": lambda x, y: loss_of(x, y),
    "sum": lambda x, y: loss_of(x, y, reduction="sum"),
    "each": lambda x, y: (loss_of(x, y, reduction="none") * 0.5).sum(),
    "ignored": lambda x, y: loss_of(x, y, ignore_index=3),
    "weights": lambda x, y: loss_of(x, y, weight=torch.arange(1.0, 12, device="cuda")),
    "the logits are read again": lambda x, y: loss_of(x, y) + x.float().square().sum(),
    "twice": lambda x, y: loss_of(x, y) + 2 * loss_of(x * 2, y),
}


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_losses_of_half_precision(name, dtype):
    def build():
        w = draw(11, 5, seed=3).to(dtype).requires_grad_()

        def step(x, y):
            w.grad = None
            loss = LOSSES[name](x @ w.t(), y)
            loss.backward()
            return loss.detach()
        return step, lambda: [w.grad]
    compiled = agree(build, [(draw(6, 5, dtype=dtype, seed=n), words(6, most=11, seed=n)) for n in range(3)])
    assert {"logits_loss", "logits_loss_backward"} <= set(kernels(compiled))
    if name in ("mean", "sum", "ignored"):
        assert kernels(compiled)[:3] == ["mm", "logits_loss", "logits_loss_backward"]


def test_logits_that_change_before_the_backward_pass():
    """The powers are kept then."""
    def build():
        w = draw(11, 5, seed=3).requires_grad_()

        def step(x, y):
            w.grad = None
            logits = x @ w.t()
            loss = F.cross_entropy(logits, y)
            with torch.no_grad():
                logits.detach().mul_(3)
            loss.backward()
            return loss.detach(), logits.detach()
        return step, lambda: [w.grad]
    compiled = agree(build, [(draw(6, 5, seed=n), words(6, most=11, seed=n)) for n in range(3)])
    assert "cross_entropy" in kernels(compiled)


def test_exact_leaves_operations_as_they_are():
    def build():
        w = draw(11, 5, seed=3).bfloat16().requires_grad_()

        def step(x, y):
            w.grad = None
            loss = loss_of(x @ w.t(), y)
            loss.backward()
            return loss.detach()
        return step, lambda: [w.grad]
    given = [(draw(6, 5, dtype=torch.bfloat16, seed=n), words(6, most=11, seed=n)) for n in range(3)]
    assert "cross_entropy" in kernels(agree(build, given, "exact"))


PARTS = {
    "all three": (lambda q, k, v, x: torch.cat([q, k, v], 2), 0),
    "one of them twice": (lambda q, k, v, x: torch.cat([q, k, q], 2), 2),
    "one is looked at": (lambda q, k, v, x: (torch.cat([q, k, v], 2), v + 1), 1),
    "something else between": (lambda q, k, v, x: torch.cat([q, x, k, v], 2), 1),
    "in other memory": (lambda q, k, v, x: torch.cat([q, k, v], 1), 0),
    "heads apart": (lambda q, k, v, x: torch.cat([q.view(2, 8, 2, 4), k.view(2, 8, 2, 4)], 3), 0),
}


@pytest.mark.parametrize("name", PARTS)
def test_joined_gradients(name):
    """Gradients of attention are written where they are joined; copies are left for what somebody else wants, too."""
    join, copies = PARTS[name]

    def build():
        def step(x, grad):
            q, k, v = [(x * n).view(2, 8, 2, 4).transpose(1, 2).detach().requires_grad_() for n in (1, 2, 3)]
            out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            made = torch.autograd.grad(out, [q, k, v], grad.view(2, 8, 2, 4).transpose(1, 2))
            return join(*[m.transpose(1, 2).reshape(2, 8, 8) for m in made], x)
        return step, list
    given = [(draw(2, 8, 8, dtype=torch.bfloat16, seed=n), draw(2, 8, 8, dtype=torch.bfloat16, seed=n + 9)) for n in range(3)]
    found = kernels(agree(build, given))
    assert "cat" not in found and found.count("copy_into") == copies


@pytest.mark.parametrize("sizes", [(5, 7, 9), (8, 13, 16), (6, 8, 11), (3, 16, 8)])
def test_even_products(sizes, monkeypatch):
    """Chains of products, forward and backward, whose matrices have rows of an even length from the start."""
    monkeypatch.setattr(fitted, "_WORTH", 1)
    rows, depth, columns = sizes

    def build():
        w, u = (draw(*shape, seed=3).requires_grad_() for shape in ((depth, columns), (columns, depth)))

        def step(x):
            w.grad = u.grad = None
            with torch.autocast("cuda", dtype=torch.bfloat16):
                made = (x @ w).relu() @ u
            made.float().square().sum().backward()
            return made.detach()
        return step, lambda: [w.grad, u.grad]
    agree(build, [(draw(rows, depth, dtype=torch.bfloat16, seed=n),) for n in range(3)])


# ---------------------------------------------------------------------------------------------------------------- memory
@pytest.mark.parametrize("seed", range(20))
def test_pieces_that_are_in_use_together_do_not_overlap(seed):
    choose = random.Random(seed)
    lives = [(choose.randint(1, 3000), first := choose.randint(0, 30), first + choose.randint(0, 12))
             for _ in range(choose.randint(1, 60))]
    offsets, top, total = laid_out(lives, 64)
    assert total == sum(-(-size // 64) * 64 for size, _, _ in lives) >= top
    for k, (size, first, last) in enumerate(lives):
        assert offsets[k] % 64 == 0 and offsets[k] + size <= top
        for j in range(k):
            other, begin, end = lives[j]
            if begin <= last and first <= end:
                assert offsets[k] + size <= offsets[j] or offsets[j] + other <= offsets[k]


def test_memory_is_used_again(monkeypatch):
    """A chain of large values takes the memory of two or three of them, whatever its length."""
    monkeypatch.setattr(graphed, "_UNSHARED", 0)
    w = draw(64, 64, seed=1)

    def chain(x):
        for _ in range(12):
            x = (x @ w).softmax(-1)
        return x
    compiled = torch.compile(chain)
    for n in range(3):
        same((compiled(draw(32, 64, seed=n)),), (chain(draw(32, 64, seed=n)),))
    made = program(compiled)
    assert 3 * made.arena_bytes <= made.unshared_bytes  # (products may ask for room to work in)


# -------------------------------------------------------------------------------------------- work at the same time
@pytest.mark.parametrize("seed", range(20))
def test_parts_wait_for_all_that_touch_their_memory(seed):
    """Directly or not, and for nothing else."""
    choose = random.Random(seed)
    some = lambda: {(choose.randrange(200), choose.randint(1, 20)) for _ in range(choose.randint(0, 3))}
    parts = [Part([n + 1], some(), some()) for n in range(30)]
    meet = lambda a, b: any(x < y + m and y < x + n for x, n in a for y, m in b)
    reached: list[set[int]] = []
    for i, direct in enumerate(waits(parts)):
        conflicts = {j for j in range(i) if meet(parts[j].writes, parts[i].reads | parts[i].writes)
                     or meet(parts[j].reads, parts[i].writes)}
        assert set(direct) <= conflicts
        reached.append(set(direct).union(*[reached[j] for j in direct]))
        assert conflicts <= reached[i]
        assert not any(j in reached[k] for j in direct for k in direct)


@pytest.mark.parametrize("shared", [0, 1 << 26])
def test_branches_of_a_graph(shared, monkeypatch):
    """Gradients of weights do not wait for those of layers further down; the played device runs what may run early at once."""
    monkeypatch.setattr(graphed, "_UNSHARED", shared)
    loose: list[int] = []  # parts that do not wait for the one before them
    untie = graphs.Graph.untie

    def counted(self, parts):
        loose.append(sum(i - 1 not in needed for i, needed in enumerate(waits(parts)) if i))
        untie(self, parts)
    monkeypatch.setattr(graphs.Graph, "untie", counted)
    w = [draw(16, 16, seed=n).requires_grad_() for n in range(4)]

    def step(x):
        for v in w:
            v.grad = None
            x = (x @ v).tanh()
        x.sum().backward()
        return x.detach(), *[v.grad for v in w]
    compiled = torch.compile(step)
    for n in range(4):
        same(compiled(draw(8, 16, seed=n)), step(draw(8, 16, seed=n)))
    assert program(compiled).graph is not None and loose[-1] >= (3 if shared else 0)


def test_work_that_asks_for_other_memory_the_second_time(monkeypatch):
    """It is written down once more, with memory as it is asked for."""
    planned = graphed.GraphProgram._planned
    monkeypatch.setattr(graphed.GraphProgram, "_planned", lambda self, table: [(a, n + 1) for a, n in planned(self, table)])

    def function(x):
        return F.dropout((x @ x).softmax(-1), 0.5) @ x
    made, given = torch.compile(function), [draw(4, 4, seed=n) for n in range(4)]
    torch.manual_seed(0)
    got = [made(x) for x in given]
    torch.manual_seed(0)
    same(got, [function(x) for x in given])
    assert program(made).arena is None


NORMS = {
    "layer norm": lambda x, w, b: F.layer_norm(x.float(), (6,), w, b).to(x.dtype),
    "two dimensions": lambda x, w, b: F.layer_norm(x.float().view(-1, 2, 6), (2, 6)).to(x.dtype).view(-1, 6),
    "rms norm": lambda x, w, b: F.rms_norm(x.float(), (6,), w).to(x.dtype),
    "the wide result is read, too": lambda x, w, b: (
        y := F.layer_norm(x.float(), (6,), w, b)).to(x.dtype) * y.sum().to(x.dtype),
    "half in, single out": lambda x, w, b: F.layer_norm(x.float(), (6,), w, b),
    "single in, half out": lambda x, w, b: F.layer_norm(x.float() * 1.5, (6,), w, b).to(x.dtype),
}


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_norms_of_half_precision(name, dtype):
    def build():
        w, b = draw(6, seed=3).requires_grad_(), draw(6, seed=4).requires_grad_()
        u = draw(6, 6, seed=5).to(dtype).requires_grad_()

        def step(x):
            w.grad = b.grad = u.grad = None
            made = NORMS[name](x @ u, w, b)
            (made @ made.T.detach()).sum().backward()
            return made.detach()
        return step, lambda: [t.grad for t in (u, w, b) if t.grad is not None]
    compiled = agree(build, [(draw(8, 6, dtype=dtype, seed=n),) for n in range(3)])
    casts = {"layer norm": 0, "two dimensions": 0, "rms norm": 0}.get(name)
    assert casts is None or not {"cast", "_to_copy", "fused"} & set(kernels(compiled)), kernels(compiled)


def test_groups_that_read_the_same_are_one():
    """The second cannot join while it is made, as its first operation has nothing to do with the first group."""
    def build():
        w = draw(5, 5, seed=3)

        def step(x):
            a = (x.exp() + 1).tanh()
            b = a @ w
            return b, ((b * 2).sigmoid() * x, (x @ w).relu().mul(3) + x)[0], (w.square() + 1).log() * x
        return step, list
    compiled = agree(build, [(draw(5, 5, seed=n),) for n in range(3)])
    assert kernels(compiled).count("fused") == 2


def test_small_conversions_are_done_together():
    """Those of parameters before the first of them is used, those of gradients before somebody looks at one; in order where
    somebody writes what they read."""
    def build():
        weights = [draw(4, 4, seed=n).requires_grad_() for n in range(4)]
        state = draw(4, 4, seed=9)

        def step(x):
            for w in weights:
                w.grad = None
            first = state.bfloat16()
            state.add_(1)
            y = (x @ first) @ state.bfloat16()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                for w in weights:
                    y = y @ w
            y.float().square().sum().backward()
            return y.detach(), sum([w.grad for w in weights])
        return step, lambda: [state, *[w.grad for w in weights]]
    compiled = agree(build, [(draw(4, 4, dtype=torch.bfloat16, seed=n),) for n in range(3)])
    sizes = [len(op.outs) for op in program(compiled).ops if op.kernel == "casts"]
    assert sizes == [4, 3]  # (the state's are part of a kernel with its change, a gradient's of one with the sum)
