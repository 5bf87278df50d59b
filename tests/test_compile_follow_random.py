"""Random programs over tensors, parameters, aliases, NumPy's memory and Python's state: eager mode beside compiled calls.

A program is a list of steps, each drawn with its own choices from `STEPS`; between its calls something of `ACTS` happens. Both
ways start from the same `World`, and all that can be seen of it is compared after each call. Programs of any step are followed;
those of the steps in `PLAIN`, which have no effect but on tensors, go the way that compile chooses. The seeds are fresh in each
run (FLAMBEAU_SEED=n repeats one).
"""

import copy
import os
import random

import numpy as np
import pytest
from compare import Tolerance, same

import flambeau as torch
from flambeau import nn, optim
from flambeau.compiler.follow.matching import native
from flambeau.compiler.follow.paths import Paths
from flambeau.nn import functional as F

pytestmark = [pytest.mark.skipif(native() is None, reason="needs a C compiler"), pytest.mark.filterwarnings("ignore")]
_given = os.environ.get("FLAMBEAU_SEED")
SEEDS = [int(_given)] if _given else random.Random(os.environ["FLAMBEAU_RUN"]).sample(range(1 << 30), 25)
STEPS = []
PLAIN = []  # those without an effect that keeps a call from being skipped


class World:
    """All that a program may touch."""

    def __init__(self, seed):
        make = np.random.RandomState(seed)

        def drawn(*shape):
            return torch.tensor(make.randn(*shape).astype(np.float32))
        self.params = [nn.Parameter(drawn(*shape)) for shape in ((4, 4), (4,), (3, 4))]
        self.buffers = [drawn(*shape) for shape in ((4, 4), (4,), (2, 4), (3, 4))]
        self.aliases = [self.buffers[0][1:3], self.buffers[0].t(), self.params[0].data, self.buffers[3].view(-1),
                        self.buffers[1].detach()]
        self.outside = [make.randn(4, 4).astype(np.float32), make.randn(4).astype(np.float32)]
        self.shared = [torch.from_numpy(a) for a in self.outside]
        kind, options = [(optim.SGD, {"momentum": 0.9}), (optim.Adam, {}), (optim.AdamW, {})][seed % 3]
        self.opt = kind(self.params, lr=0.02, **options)
        self.drop, self.norm = nn.Dropout(0.5), nn.BatchNorm1d(4)
        self.kept, self.numbers, self.log = [], [], []
        self.count, self.factor, self.window = 0, 0.1, None
        self.views = [self.buffers[0][1], self.buffers[0].view(-1)[2:6], self.params[0].detach()[2], self.buffers[3][:, 1]]
        self.scale = 0.5

    def seen(self):
        return [self.views, self.params, [p.grad for p in self.params], self.buffers, self.aliases, self.outside, self.kept,
                self.numbers, self.log, self.count, list(self.norm.buffers()), torch.get_rng_state(),
                self.opt.state_dict()["state"]]


def snapshot(value):
    """A value as data that later calls cannot change."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), value.stride(), value.requires_grad, value.is_leaf, value._version,
                value.detach().numpy().copy())
    if isinstance(value, (list, tuple)):
        return [snapshot(v) for v in value]
    if isinstance(value, dict):
        return [snapshot(v) for v in value.items()]
    return value.copy() if isinstance(value, np.ndarray) else value


def square(t):
    """Any tensor as a 4 x 4 matrix."""
    if t.dim() == 0:
        return t.reshape(1, 1).expand(4, 4)
    if t.shape[-1] != 4:
        t = t.transpose(-1, -2) if t.dim() > 1 and t.shape[-2] == 4 else t.reshape(-1)[:1].expand(4)
    if t.dim() == 1:
        return t.expand(4, 4)
    return torch.cat([t, t, t, t])[:4] if t.shape[0] < 4 else t


class Choice:
    """What one step of a program was given: two tensors of the pool, and numbers."""

    def __init__(self, draw):
        self.i, self.j, self.k = draw.randrange(1000), draw.randrange(1000), draw.randrange(1000)
        self.number = draw.choice([0.5, 2.0, -1.25, 3, 1])
        self.every = draw.choice([2, 3, 5])
        self.unary = draw.choice(["relu", "tanh", "sigmoid", "exp", "neg", "abs", "sin", "square"])
        self.binary = draw.choice(["add", "sub", "mul", "maximum", "minimum"])
        self.inplace = draw.choice(["add_", "mul_", "sub_", "copy_"])
        self.total = draw.choice(["sum", "mean", "max", "min"])

    def first(self, pool):
        return pool[self.i % len(pool)]

    def second(self, pool):
        return pool[self.j % len(pool)]


def step(function):
    STEPS.append(function)
    return function


def plain(function):
    PLAIN.append(function)
    return step(function)


# ------------------------------------------------------------------------------------------------------- computing
step(lambda w, p, c: p.append(getattr(torch, c.unary)(c.first(p).clamp(-3, 3))))
step(lambda w, p, c: p.append(getattr(torch, c.binary)(square(c.first(p)), square(c.second(p)))))
step(lambda w, p, c: p.append(c.first(p) * c.number + w.factor))
step(lambda w, p, c: p.append(c.first(p) * (w.count % 3) + w.count * 0.01))
step(lambda w, p, c: p.append((square(c.first(p)) @ square(c.second(p))).clamp(-5, 5)))
step(lambda w, p, c: p.append(F.linear(square(c.first(p)), w.params[0], w.params[1]).tanh()))
step(lambda w, p, c: p.append(getattr(c.first(p), c.total)()))
step(lambda w, p, c: p.append(square(c.first(p)).sum(c.k % 2)))
step(lambda w, p, c: p.append(square(c.first(p))[1:3]))
step(lambda w, p, c: p.append(square(c.first(p)).t().contiguous()))
step(lambda w, p, c: p.append(square(c.first(p)).reshape(2, 8).reshape(-1, 4)))
step(lambda w, p, c: p.append(torch.cat([square(c.first(p)), square(c.second(p))])[2:6]))
step(lambda w, p, c: p.append(torch.stack([square(c.first(p)), square(c.second(p))]).sum(0)))
step(lambda w, p, c: p.append(square(c.first(p)).softmax(-1)))
step(lambda w, p, c: p.append(torch.where(square(c.first(p)) > 0, square(c.first(p)), square(c.second(p)))))
step(lambda w, p, c: p.append(square(c.first(p))[torch.tensor([(c.i + w.count) % 4, c.j % 4, 1, 0])]))
step(lambda w, p, c: p.append(square(c.first(p)).gather(1, square(c.first(p)).detach().argsort(1))))
step(lambda w, p, c: p.append(square(c.first(p))[square(c.first(p)).detach() > 0].sum()))
step(lambda w, p, c: p.append(square(c.first(p))[:1].expand(4, 4) + square(c.second(p))))
step(lambda w, p, c: p.append(square(c.first(p)).cumsum(0).clamp(-5, 5)))
step(lambda w, p, c: p.append(F.cross_entropy(square(c.first(p)), torch.tensor([0, 1, (2 + w.count) % 4, 3]))))
step(lambda w, p, c: p.append(F.layer_norm(square(c.first(p)) + torch.eye(4), (4,), w.params[1], None)))
step(lambda w, p, c: p.append(torch.cat(square(c.first(p)).chunk(2, 1)[::-1], 1)))
step(lambda w, p, c: p.append(square(c.first(p)).masked_fill(torch.eye(4).bool(), c.number)))
step(lambda w, p, c: p.append(c.first(p) * torch.tensor(0.5 + w.count % 2) + torch.full((), 0.1)))
step(lambda w, p, c: p.append(torch.tensor([[float(w.count), 1.0, 2.0, 3.0]] * 4)))
step(lambda w, p, c: p.append(c.first(p).double().sin().float()))
step(lambda w, p, c: p.append((torch.arange(4) * (w.count % 4) // 2 + 1).float()))
step(lambda w, p, c: p.append(F.conv2d(square(c.first(p))[None, None], w.params[0][None, None, :3, :3], padding=1)[0, 0]))
step(lambda w, p, c: p.extend([torch.rand(4, 4), torch.randn(4)]))
step(lambda w, p, c: p.append(w.drop(square(c.first(p)))))
step(lambda w, p, c: p.append(w.norm(square(c.first(p)).clamp(-3, 3) + torch.eye(4))))
step(lambda w, p, c: torch.manual_seed(w.count))
step(lambda w, p, c: p.append(w.views[c.i % 4] * 0.5))
step(lambda w, p, c: p.append(w.views[c.i % 4]))
step(lambda w, p, c: p.append(w.scale * c.first(p)))
step(lambda w, p, c: p.append(square(c.first(p)).as_strided((2, 2), (1, 2), 1)))
step(lambda w, p, c: p.append(square(c.first(p)).clone().mul_(0.5).add_(1)))
step(lambda w, p, c: p.append(square(c.first(p)).unbind(0)[c.k % 4]))
step(lambda w, p, c: p.append(square(c.first(p)).unfold(0, 2, 1).sum(-1)))
step(lambda w, p, c: p.append(square(c.first(p)).diagonal()))
step(lambda w, p, c: p.append(torch.full_like(square(c.first(p)).t(), c.number)))
step(lambda w, p, c: p.append(torch.arange(8.0)[::2]))
step(lambda w, p, c: p.append(square(c.first(p)) * (2 if square(c.first(p)).requires_grad else 3)))
step(lambda w, p, c: p.append(square(c.first(p)).view(2, 2, 4).permute(2, 0, 1)[:, 0] if c.first(p).is_contiguous() else p[-1]))
step(lambda w, p, c: p.append(torch.autograd.grad((w.params[0] * square(c.first(p)).detach()).sin().sum(), w.params[0])[0]))
PLAIN += [s for s in STEPS if "manual_seed" not in s.__code__.co_names]


# -------------------------------------------------------------------------------------------------- changing in place
@plain
@torch.no_grad()
def change_a_buffer(w, p, c):
    target, value = w.buffers[c.i % 4], square(c.second(p).detach())
    getattr(target, c.inplace)((value[:target.shape[0]] if target.dim() == 2 else value[0]) * 0.5)


@plain
@torch.no_grad()
def change_an_alias(w, p, c):
    w.aliases[c.i % 5].mul_(0.9).add_(0.1)
    p.append(square(w.aliases[c.j % 5]) + 1)


@plain
@torch.no_grad()
def change_a_slice(w, p, c):
    w.buffers[0][c.i % 4] = c.second(p).detach().mean()


@plain
def fill_rows(w, p, c):
    rows = torch.zeros(4, 4)
    for n in range(3):
        rows[n] = square(p[(c.i + n) % len(p)]).detach()[n]
    p.append(rows)


@plain
def move_rows(w, p, c):
    t = square(c.first(p)).clone()
    t[1:] = t[:-1].clone()
    t[0] = 0
    p.append(t)


@plain
@torch.no_grad()
def refill(w, p, c):
    w.buffers[c.i % 4].fill_(0.1 * (w.count % 4)) if c.k % 2 else w.buffers[c.i % 4].zero_()


@step
def other_memory(w, p, c):
    w.buffers[2].data = square(c.first(p)).detach()[:2].clone()
    w.buffers[1] = square(c.second(p)).detach()[0].clone() * 0.5


# ------------------------------------------------------------------------------------------------------ Python and NumPy
step(lambda w, p, c: w.numbers.append(c.first(p).detach().sum().item()))
step(lambda w, p, c: p.append(c.first(p) * 2 if c.first(p).detach().sum() > 0.05 else c.first(p) - 1))  # sums of a norm are 0
step(lambda w, p, c: p.append(c.first(p) + 10 if w.count % c.every == 0 else c.second(p) * 0.5))
step(lambda w, p, c: w.log.append(round(float(copy.deepcopy(w.buffers[0]).sum()), 2)))
step(lambda w, p, c: p.append(torch.from_numpy(np.asarray(np.tanh(c.first(p).detach().numpy())))))
step(lambda w, p, c: w.shared[c.i % 2].mul_(0.5))


@step
def keep_some(w, p, c):
    if w.count % c.every == 0:
        w.kept = [*w.kept[-2:], c.first(p).detach() if c.k % 2 else c.first(p)]
    elif w.kept:
        p.append(square(w.kept[-1].detach()) * 0.5)


@step
def change_outside(w, p, c):
    p.append(square(w.shared[c.i % 2]) * 2)
    w.outside[c.i % 2][...] += 0.5
    p.append(square(w.shared[c.i % 2]) * 3)


@step
def change_through_a_window(w, p, c):
    if w.window is None or c.k % 2:
        w.window = w.buffers[c.i % 4].numpy()
    p.append(square(w.buffers[c.i % 4]) + 1)
    w.window[0] *= 0.5
    p.append(square(w.buffers[c.i % 4]) + 2)


@step
def catch_errors(w, p, c):
    for fails in (lambda: torch.ones(3) + torch.ones(4), lambda: torch.ones(3)[torch.tensor([5 if w.count % 2 else 1])]):
        try:
            p.append(fails())
        except (RuntimeError, IndexError) as error:
            w.log.append(type(error).__name__)


@step
def raise_one(w, p, c):
    if w.count % c.every == 1:
        raise ValueError("planned")


# ----------------------------------------------------------------------------------------------------------- gradients
@plain
def backward(w, p, c):
    tracked = [t.sum() for t in p[-4:] if t.requires_grad]
    if tracked:
        sum(tracked).backward(retain_graph=bool(c.k % 2))
        p[:] = [t.detach() for t in p]


@plain
def update(w, p, c):
    nn.utils.clip_grad_value_(w.params, 1.0)
    w.opt.step()
    if c.k % 3:
        w.opt.zero_grad(set_to_none=bool(c.k % 2))


@step
def clip(w, p, c):
    grown = [q for q in w.params if q.grad is not None]
    if grown:
        w.numbers.append(float(nn.utils.clip_grad_norm_(grown, 0.5)))


@step
def hook(w, p, c):
    t = square(c.first(p)) * w.params[0]
    t.register_hook(lambda grad: w.log.append("hook") or grad * 2)
    p.append(t.tanh())


@plain
def derivatives(w, p, c):
    x = square(c.first(p)).detach().clamp(-1, 1).requires_grad_()
    slope, = torch.autograd.grad((x ** 3).sum(), x, create_graph=True)
    p.append(torch.autograd.grad(slope.sum(), x)[0])


# -------------------------------------------------------------------------------------------------------- between the calls
def put(owner, name, value):
    return lambda w: setattr(owner(w), name, value())


def quietly(change):
    """A change of memory without history."""
    def act(w):
        with torch.no_grad():
            change(w)
    return act


def first(w):
    return w.params[0]


ACTS = [
    put(lambda w: w, "factor", lambda: 0.2), put(lambda w: w, "scale", lambda: 1),
    put(lambda w: w, "scale", lambda: torch.tensor(0.25)), lambda w: w.drop.eval(), lambda w: w.drop.train(),
    put(lambda w: w.drop, "p", lambda: 0.2), lambda w: w.norm.eval(), put(lambda w: w.norm, "momentum", lambda: None),
    quietly(lambda w: w.buffers[0].mul_(1.1)), quietly(lambda w: first(w).mul_(0.9)), quietly(lambda w: w.aliases[2].add_(0.1)),
    lambda w: first(w).requires_grad_(False), lambda w: first(w).requires_grad_(), lambda w: w.params[1].requires_grad_(False),
    lambda w: w.opt.zero_grad(), lambda w: w.opt.zero_grad(set_to_none=False), lambda w: w.opt.state.clear(),
    put(first, "grad", lambda: torch.ones(4, 4).t()), put(first, "grad", lambda: torch.ones(4, 8)[:, ::2]),
    put(first, "data", lambda: torch.linspace(0, 1, 32).view(4, 8)[:, ::2]), put(first, "data", lambda: torch.eye(4)),
    put(lambda w: w.buffers[2], "data", lambda: torch.ones(2, 4)), lambda w: w.outside[0].__setitem__(0, 0.3),
    lambda w: w.views.__setitem__(0, w.buffers[0][2]), lambda w: w.views.__setitem__(1, torch.ones(4)),
    lambda w: w.views.__setitem__(2, w.params[1].detach()), lambda w: w.views.__setitem__(3, w.params[1]),
    lambda w: w.views.__setitem__(0, first(w)[1]), lambda w: w.buffers.__setitem__(1, w.buffers[0][0]),
    lambda w: w.buffers[3].requires_grad_(), lambda w: w.buffers[3].requires_grad_(False),
    lambda w: w.opt.param_groups[0].update(lr=0.05), lambda w: w.opt.param_groups[0].update(weight_decay=0.01)]


def argument(draw, make):
    x = torch.tensor(make.randn(12, 4).astype(np.float32))
    kinds = [lambda: x[:4].clone()] * 3 + [
        lambda: x[2:6], lambda: x[:4].t(), lambda: x[:4].clone().requires_grad_(), lambda: x[:4].clone().requires_grad_() * 2,
        lambda: x[::3], lambda: x[1:2].expand(4, 4)]
    return draw.choice(kinds)()


# ------------------------------------------------------------------------------------------------------------- the test
def program(seed, among, world):
    draw = random.Random(seed)
    steps = [(draw.choice(among), Choice(draw)) for _ in range(draw.randrange(2, 14 if among is STEPS else 9))]

    def run(x, y):
        if among is STEPS:
            world.count += 1
        pool = [x, y, world.params[0] * 1.0, world.buffers[0] + 0.0]
        for function, choice in steps:
            function(world, pool, choice)
            del pool[:-12]
        return [t.detach() if n % 2 else t for n, t in enumerate(pool[-3:])]
    return run


def used(results, how):
    """What a caller does with the results."""
    tracked = [t for t in results if t.requires_grad and not t.is_leaf]
    if how == 0 and tracked:
        tracked[0].sum().backward(retain_graph=True)
    elif how == 1:
        with torch.no_grad():
            results[1].add_(1)


def calls(seed, wrap, among):
    """What can be seen after each of ten calls, and the wrapped function."""
    world, make, draw, found = World(seed), np.random.RandomState(seed + 1), random.Random(seed + 2), []
    function = wrap(program(seed, among, world))
    torch.manual_seed(seed)
    for n in range(10):
        x, y = argument(draw, make), torch.tensor(make.randn(4, 4).astype(np.float32))
        try:
            if n > 2 and n % 2:
                draw.choice(ACTS)(world)
            result = function(x, x if n % 4 == 3 else y)
            used(result, draw.randrange(4))
        except (RuntimeError, ValueError, IndexError) as error:
            result = type(error).__name__
        try:
            found.append(snapshot([result, x, *world.seen()]))
        except RuntimeError as error:  # a view whose history is forbidden
            found.append(type(error).__name__)
    return found, function


def follow(function):
    paths = Paths(function, "program", False, False, False)
    paths.pace = None

    def call(*args):
        return paths.call(args, {})
    call.paths = paths
    return call


runs: list[int] = []  # how often native programs ran


def compare(seed, wrap, among):
    expected, _ = calls(seed, lambda f: f, among)
    got, function = calls(seed, wrap, among)
    for n, (a, b) in enumerate(zip(expected, got)):
        same(a, b, Tolerance(5e-4, 5e-5), f"FLAMBEAU_SEED={seed}, call {n}")
    return function


@pytest.mark.parametrize("seed", SEEDS)
def test_random_programs(seed):
    runs.append(compare(seed, follow, STEPS).paths.runs)


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_random_programs_without_effects(seed):
    compare(seed, torch.compile, PLAIN)


def test_programs_ran():
    """Not in every one: seven calls may be seven different ways."""
    if len(runs) < len(SEEDS) or len(SEEDS) == 1:
        pytest.skip("not all of the random programs were run")
    assert sum(map(bool, runs)) > len(SEEDS) / 2
