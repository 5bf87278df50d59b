"""Sizes and numbers that change: compiled against eager, and how many times the C compiler is asked."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from contextlib import contextmanager

import pytest
from compiled import agree, programs, same_seen, seen

import flambeau as torch
from flambeau import nn, optim
from flambeau.compiler.ir.literals import array, blank, literal, size
from flambeau.compiler.render.dialects.c import written_out
from flambeau.compiler.render.template import Family
from flambeau.native import toolchain

F = nn.functional


@contextmanager
def libraries():
    """The different texts of programs for which a library was wanted, whether it was on disk or not."""
    wanted: list[str] = []
    build_all = toolchain.build_all

    def counted(requests):
        wanted.extend(source for source, name, _ in requests if name == "step" and source not in wanted)
        return build_all(requests)
    toolchain.build_all = counted
    try:
        yield wanted
    finally:
        toolchain.build_all = build_all


def family(fn, dynamic):
    """The compiled function, with other sharing than the usual."""
    fn._compiled.family = Family(dynamic)
    return fn


class Attention(nn.Module):
    def __init__(self, width=16, heads=2, by_hand=False):
        super().__init__()
        self.heads, self.by_hand = heads, by_hand
        self.norm, self.qkv, self.out = nn.LayerNorm(width), nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.feed = nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width))

    def forward(self, x):
        b, t, c = x.shape
        q, k, v = (y.view(b, t, self.heads, c // self.heads).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        if self.by_hand:
            scores = q @ k.transpose(-2, -1) / 3
            scores = scores.masked_fill(torch.ones(t, t).tril() == 0, float("-inf"))
            y = scores.softmax(-1) @ v
        else:
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, c))
        return x + self.feed(x)


def language_model(by_hand=False):
    """build() of a training step of a small GPT."""
    def build():
        tokens, places = nn.Embedding(11, 16), nn.Embedding(64, 16)
        net = nn.ModuleList([tokens, places, Attention(by_hand=by_hand), Attention(by_hand=by_hand), nn.Linear(16, 11)])
        # Slow, and not Adam: what rounding does in one step must not grow over thirty.
        opt = optim.SGD(net.parameters(), lr=0.01, momentum=0.9)

        def step(text, target):
            opt.zero_grad()
            x = tokens(text) + places(torch.arange(text.shape[1]))
            loss = F.cross_entropy(net[4](net[3](net[2](x))).flatten(0, 1), target.flatten())
            loss.backward()
            opt.step()
            return loss
        return step, net
    return build


def words(b, t):
    n = torch.arange(b * t + 1) * 7 % 11
    return n[:-1].view(b, t).clone(), n[1:].view(b, t).clone()


PAIRS = [(2, 8), (3, 8), (3, 13), (8, 8), (16, 16), (2, 64), (5, 31), (16, 64), (7, 2), (4, 32), (2, 16), (12, 48), (9, 17),
         (2, 3)]


@pytest.mark.parametrize("by_hand", [False, True])
def test_a_language_model_over_many_shapes(by_hand):
    with libraries() as wanted:
        fn = agree(language_model(by_hand), [words(2, 5), *[words(*p) for p in PAIRS for _ in range(2)]], rtol=2e-5)
    assert programs(fn) == len(PAIRS)
    assert len(wanted) <= 3


@pytest.mark.parametrize("dynamic, most", [(True, 1), (False, len(PAIRS))])
def test_sharing_can_be_asked_for_and_forbidden(dynamic, most):
    expected = language_model()
    torch.manual_seed(0)
    step, net = expected()
    torch.manual_seed(0)
    other, mine = expected()
    fn = family(torch.compile(other), dynamic)
    for run in (step, fn):
        run(*words(2, 5))  # makes the optimizer's state
    with libraries() as wanted:
        for p in PAIRS:
            for _ in range(2):
                same_seen(seen(step(*words(*p))), seen(fn(*words(*p))), 2e-5)
    same_seen(seen(net), seen(mine), 2e-4)
    assert len(wanted) == most


def test_shapes_in_any_order_need_three_libraries():
    """Whichever comes first: one for the first shape, one for the first dimension that changes, one for the second."""
    step, _ = language_model()()
    step(*words(2, 5))
    for pairs in ([(2, 8), (4, 16), (8, 32), (4, 32), (8, 16)], [(8, 8), (16, 16), (8, 16), (16, 8)],
                  [(16, 64), (16, 2), (2, 2), (2, 64)], [(2, 16), (2, 17), (2, 18), (3, 18), (16, 48)]):
        with libraries() as wanted:
            fn = torch.compile(step)
            for p in pairs:
                fn(*words(*p))
        assert programs(fn) == len(pairs) and len(wanted) <= 3, pairs


def test_a_smaller_last_batch():
    def build():
        net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 32), nn.Tanh(), nn.Linear(32, 3))
        opt = optim.SGD(net.parameters(), lr=0.1, momentum=0.9)

        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            return loss
        return step, net, opt

    def batch(n):
        return torch.linspace(-1, 1, 8 * n).view(n, 8).sin(), torch.arange(n) % 3

    with libraries() as wanted:
        epochs = [batch(n) for n in (64, 64, 64, 23)] * 3
        agree(build, [batch(64), *epochs], 2)
    assert len(wanted) == 2  # of two sizes each has the best there is
    with libraries() as wanted:
        agree(build, [batch(64), *[batch(n) for n in (64, 23, 5, 300, 2, 31, 700)]], 7)
    assert len(wanted) == 2


def test_a_batch_of_one_after_others():
    """A dimension of length one is another program; it does not cost as much again for each other dimension."""
    with libraries() as wanted:
        calls = [words(2, 5), *[words(b, t) for b, t in ((2, 8), (3, 9), (1, 8), (1, 9), (1, 33), (3, 33), (2, 1), (3, 1))]]
        agree(language_model(), calls, 8, rtol=2e-5)
    assert len(wanted) <= 5


def test_a_shape_that_returns_has_its_program():
    fn = torch.compile(lambda x: (x * 2).sum(0) + 1)
    for n in (3, 4, 5, 3, 4, 5, 4, 3):
        x = torch.arange(2.0 * n).view(n, 2)
        assert torch.equal(fn(x), (x * 2).sum(0) + 1)
    assert programs(fn) == 3


# ------------------------------------------------------------------------------------------------------------- numbers
def test_numbers_that_change():
    def build():
        return (lambda x, a, b: (x * a + 1).tanh().clamp(-b, b).mean() + a,)
    x = torch.linspace(-2, 2, 24).view(4, 6)
    numbers = [(x, 0.5, 0.25), (x, 0.75, 0.25), (x, 0.75, 0.9), (x, -1.5, 0.1), (x, 0.1, 3.0), (x, float("inf"), 1.0)]
    with libraries() as wanted:
        agree(build, [n for n in numbers for _ in range(2)], 6)
    assert len(wanted) <= 3


def test_numbers_that_make_another_operation():
    """A power of two is a square."""
    x = torch.linspace(0.5, 2, 6)
    agree(lambda: (lambda x, p: x ** p,), [(x, p) for p in (2.0, 3.0, 2.5, 0.5, 1.5, 2.0, -1.0, 0.0)])


def test_integers_and_doubles():
    x, y = torch.arange(12).view(3, 4), torch.linspace(-1, 1, 12, dtype=torch.float64).view(3, 4)
    calls = [(x[:n], y[:n], k) for n, k in ((3, 2), (2, 5), (3, -7), (2, 1 << 40))]
    agree(lambda: (lambda x, y, k: (x * k + 1, (x + k) // 3, y * k, (y + x).sum(0), x.sum()),), calls, rtol=0)


def test_numbers_and_sizes_of_which_some_are_special():
    """No elements, one element; numbers that are no numbers."""
    def f(x, k):
        y = x * k
        return y.sum(), y.sum(0), F.mse_loss(x, y), torch.cat([x, y], 0)
    cases = [(2, 3, 1.5), (3, 4, 2.5), (1, 3, 2.5), (3, 1, 2.5), (1, 1, 0.5), (4, 5, float("nan")), (4, 5, -0.0), (4, 5, 0.0)]
    agree(lambda: (f,), [(torch.ones(a, b) * 2, k) for a, b, k in cases for _ in range(2)])
    agree(lambda: (f,), [(torch.ones(0, 3), 0.5)] * 3, goes="follow")


# --------------------------------------------------------------------------------------------------------- operations
OPERATIONS = {
    "reductions": lambda x: (x.sum(0), x.mean(1), x.amax(1), x.var(0), x.norm(), (x > 0).sum(1), x.argmax(1), x.logsumexp(0)),
    "rows": lambda x: (x.softmax(1), x.log_softmax(0), x.cumsum(1), F.layer_norm(x, x.shape[1:])),
    "moves": lambda x: (torch.cat([x, x + 1], 1), torch.stack([x, -x]), x.t().contiguous(), x[1:] - x[:-1], x.roll(1, 0)),
    "products": lambda x: (x @ x.t(), x.t() @ x, torch.outer(x[0], x[1]), x @ x[0], torch.bmm(x[None] + 0, x.t()[None] + 1)),
    "places": lambda x: (x[x.argsort(0)[0]], x.gather(1, x.argmax(1, keepdim=True)), x.masked_fill(x > 0, 3.0), x.tril()),
    "pictures": lambda x: (F.max_pool2d(F.conv2d(x[None, None], torch.ones(2, 1, 3, 3)), 2), F.avg_pool2d(x[None], 2)),
    "losses": lambda x: (F.mse_loss(x, x + 1), F.smooth_l1_loss(x, x * 3), F.cross_entropy(x, x.argmin(1)), F.l1_loss(x, -x)),
}


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("mode", [None, "exact"])
def test_operations_over_many_shapes(name, mode):
    shapes = [(4, 6), (5, 6), (5, 7), (16, 20), (33, 40), (70, 90), (6, 4), (40, 300), (300, 40)]
    calls = [((torch.arange(a * b) * 37 % 101 / 50 - 1).view(a, b).clone(),) for a, b in shapes]
    twice = [c for c in calls for _ in range(2)]
    with libraries() as wanted:
        fn = agree(lambda: (OPERATIONS[name],), twice, rtol=0 if mode == "exact" else 1e-5, mode=mode)
    assert programs(fn) == len(shapes) > len(wanted)


@pytest.mark.parametrize("dynamic", [None, True])
@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_over_many_shapes(make, dynamic):
    torch.manual_seed(0)
    net = make(3, 5, 2, bidirectional=True)

    def f(x):
        net.zero_grad()
        out = net(x)[0]
        (out ** 2).sum().backward()
        return [out.detach(), *[p.grad.clone() for p in net.parameters()]]
    fn = family(torch.compile(f), dynamic)
    with libraries() as wanted:
        for t, b in ((4, 3), (5, 3), (5, 8), (17, 2), (2, 20)):
            x = (torch.arange(t * b * 3) % 7 / 3.5 - 1).view(t, b, 3).clone()
            same_seen(seen(f(x)), seen(fn(x)))
            same_seen(seen(f(x)), seen(fn(x)))
    assert programs(fn) == 5 and len(wanted) <= (1 if dynamic else 3)


def test_random_numbers_and_normalization_over_many_shapes():
    def build():
        # No bias before the norm: its gradient is zero but for rounding.
        net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3),
                            nn.GroupNorm(2, 4), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 3))
        opt = optim.SGD(net.parameters(), lr=0.01)

        def step(x):
            opt.zero_grad()
            loss = (net(x) ** 2).mean() + torch.rand(x.shape[0]).mean()
            loss.backward()
            opt.step()
            return loss
        return step, net
    calls = [((torch.arange(b * 2 * h * h) % 13 / 6.0 - 1).view(b, 2, h, h).clone(),)
             for b, h in ((4, 6), (4, 6), (5, 6), (5, 9), (8, 12))]
    with libraries() as wanted:
        agree(build, [c for c in calls for _ in range(2)], rtol=1e-4)
    assert len(wanted) <= 3


def test_a_model_whose_backward_runs_outside():
    """Two programs for each shape; each has libraries of its own."""
    torch.manual_seed(0)
    net = Attention()
    fn = torch.compile(net)
    with libraries() as wanted:
        for b, t in PAIRS[:8]:
            x = (torch.arange(b * t * 16) % 17 / 8.0 - 1).view(b, t, 16).clone()
            results = []
            for call in (net, fn, fn):
                net.zero_grad()
                x.requires_grad_().grad = None
                out = call(x)
                (out ** 2).mean().backward()
                results.append(seen([out, x.grad, *[p.grad for p in net.parameters()]]))
            same_seen(results[0], results[1])
            same_seen(results[0], results[2])
    assert len(wanted) <= 6


# --------------------------------------------------------------------------------------------------------- one library
def shared_pair():
    """A function with two programs that are one library, the arguments of each, and what is expected."""
    net = nn.Sequential(nn.Linear(4, 40), nn.GELU(), nn.Linear(40, 1))

    def f(x, k):
        return (net(x) * k).mean() + torch.stack([x, x]).sum() * 0
    fn = torch.compile(f)
    x = [torch.linspace(-1, 1, 4 * n).view(n, 4).clone() for n in (3, 5, 700)]
    for a in x:
        fn(a, 0.5)
    first, second = (p for plans in list(fn._compiled.plans.values())[1:] for p in plans)
    assert first.program.source == second.program.source
    assert first.program.arena_bytes != second.program.arena_bytes
    return fn, [(a, f(a, 0.5).item()) for a in x[1:]]


def test_programs_that_share_a_library_take_turns():
    fn, cases = shared_pair()
    for _ in range(20):
        for x, expected in cases:
            assert fn(x, 0.5).item() == pytest.approx(expected, rel=1e-5)


def test_programs_that_share_a_library_run_at_once():
    fn, cases = shared_pair()
    wrong = []

    def work(x, expected):
        for _ in range(300):
            if fn(x, 0.5).item() != pytest.approx(expected, rel=1e-5):
                wrong.append(x.shape)
    threads = [threading.Thread(target=work, args=case) for case in cases * 2]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not wrong


def test_an_error_is_that_of_its_own_program():
    table = nn.Embedding(5, 3)
    fn = torch.compile(lambda i: table(i).sum())
    for n in (2, 3, 4):
        fn(torch.arange(n) % 5)
    with pytest.raises(IndexError):
        fn(torch.tensor([1, 9, 2]))
    assert fn(torch.tensor([1, 2, 3, 4])).item() == pytest.approx(table(torch.tensor([1, 2, 3, 4])).sum().item())


def test_another_process_finds_the_libraries(tmp_path):
    code = """
import flambeau as torch
from flambeau.native import toolchain
built, compile_ = [], toolchain._compile
toolchain._compile = lambda *a: (built.append(a[3].name), compile_(*a))
torch.manual_seed(0)
net = torch.nn.Linear(6, 40)
fn = torch.compile(torch.no_grad()(lambda x, k: (torch.tanh(net(x)) * k).sum(0)))
for n, k in ((2, 0.5), (3, 0.5), (7, 0.25), (300, 0.1), (8, 0.3)):
    x = torch.ones(n, 6)
    for _ in range(2):
        assert torch.allclose(fn(x, k), (torch.tanh(net(x)) * k).sum(0), rtol=1e-5, atol=1e-6 * n)
print(sum(name.startswith("step") for name in built))
"""
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=300,
                           env={**os.environ, "FLAMBEAU_CACHE": str(tmp_path)}) for _ in range(2)]
    assert [r.returncode for r in runs] == [0, 0], runs[0].stderr + runs[1].stderr
    first, second = (int(r.stdout) for r in runs)
    assert 2 <= first <= 3 and second == 0


# ---------------------------------------------------------------------------------------------------------- the pieces
def test_numbers_are_written_as_they_were():
    text = f"f({size(768)}, {size(-3)}, {literal(0.5)}, {literal(7)}, {literal(float('-inf'))}, {literal(-1 << 63)})"
    assert written_out(text) == "f(768, -3, (0x1.0000000000000p-1), (7L), (-INFINITY), (-9223372036854775807L - 1))"
    assert written_out(literal((1 << 64) - 1)) == "18446744073709551615UL"
    assert written_out(array("sizes", [1, 2])) == "static const long sizes[] = {1, 2};"
    assert blank(text) == blank(text.replace("768", "12").replace("-3", "4"))
    assert blank(array("a", [1])) == blank(array("a", [1, 2])) != blank(array("b", [1]))


def test_a_first_program_has_its_numbers_in_its_text():
    """Nothing is read at run time that need not be."""
    fn = torch.compile(lambda x: (x * 0.3).sum(0))
    for n in (3, 4, 5):
        fn(torch.ones(n, 700))
    first, second, third = (p.program.source for plans in fn._compiled.plans.values() for p in plans)
    assert "const double *m" not in first and "700" in first
    assert second == third and "const double *m" in second and "700" in second, "the columns did not change"
