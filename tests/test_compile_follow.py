"""Calls that are followed: the Python runs, the kernels come from native programs. Each case is compared with eager mode over
many calls, and must have run programs."""

import itertools
import logging

import numpy as np
import pytest
from compiled import same_seen
from followed import agree, batch, follow, history, stepped, task

import flambeau as torch
from flambeau import nn, optim
from flambeau.compiler.follow.matching import native
from flambeau.nn import functional as F
from flambeau.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.skipif(native() is None, reason="needs a C compiler")


# --------------------------------------------------------------------------------------------------- training steps
@pytest.mark.parametrize("kind, options", [
    (optim.SGD, {}), (optim.SGD, {"momentum": 0.9, "nesterov": True}), (optim.Adam, {}), (optim.AdamW, {"amsgrad": True}),
    (optim.RMSprop, {"momentum": 0.1}), (optim.Adagrad, {}), (optim.NAdam, {}), (optim.Rprop, {}), (optim.ASGD, {})])
def test_a_training_step(kind, options):
    def build():
        net, opt = task(kind=kind, **options)
        return lambda x, y: stepped(net, opt, x, y), batch, net, opt
    agree(build, runs=4)


def test_a_plain_step_is_one_program_that_runs_from_the_second_call_on():
    def build():
        net, opt = task(kind=optim.Adam)
        return lambda x, y: stepped(net, opt, x, y), batch, net, opt
    paths = agree(build, calls=10, builds=1, interpreted=0, runs=9)
    assert paths.steps < 40 and not paths.reasons


def test_learning_rates_and_schedulers_inside():
    def build():
        net, opt = task(kind=optim.AdamW)
        scheduler = optim.lr_scheduler.CosineAnnealingLR(opt, 10)

        def step(x, y):
            loss = stepped(net, opt, x, y)
            scheduler.step()
            print(scheduler.get_last_lr())
            return loss
        return step, batch, net, opt, lambda: scheduler.state_dict()["last_epoch"]
    agree(build, builds=1, runs=7)


def test_a_scheduler_of_a_loss():
    def build():
        net, opt = task()
        scheduler = optim.lr_scheduler.ReduceLROnPlateau(opt, patience=1, factor=0.5)

        def step(x, y):
            loss = stepped(net, opt, x, y)
            scheduler.step(loss)
            return loss, opt.param_groups[0]["lr"]
        return step, batch, net
    agree(build, calls=12)


def test_lbfgs():
    def build():
        net, opt = task(kind=optim.LBFGS, max_iter=4)

        def step(x, y):
            def closure():
                opt.zero_grad()
                loss = ((net(x) - y) ** 2).mean()
                loss.backward()
                return loss
            return opt.step(closure)
        return step, lambda n: batch(0), net
    agree(build, rtol=1e-3)


def test_grad_scaler():
    def build():
        net, opt = task(kind=optim.Adam)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0, growth_interval=3)

        def step(x, y):
            opt.zero_grad()
            loss = ((net(x) - y) ** 2).mean()
            scaler.scale(loss).backward()
            scaler.step(opt)
            scaler.update()
            return loss, scaler.get_scale()
        return step, batch, net, opt
    agree(build)


def test_autocast_batch_norm_and_dropout():
    def build():
        torch.manual_seed(0)
        net = nn.Sequential(nn.Conv2d(1, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Dropout(0.3), nn.Flatten(),
                            nn.Linear(144, 3))
        opt = optim.SGD(net.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
                loss = F.cross_entropy(net(x), y)
            loss.backward()
            opt.step()
            return loss
        return step, lambda n: (batch(n)[0].repeat(4, 16)[:4].reshape(4, 1, 8, 8), torch.arange(4) % 3), net, opt
    agree(build, builds=1, runs=6, interpreted=1)


def test_gradients_that_accumulate_and_are_clipped():
    def build():
        net, opt = task(kind=optim.SGD, momentum=0.5)
        count = itertools.count()

        def step(x, y):
            ((net(x) - y) ** 2).mean().backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 0.1)
            if next(count) % 3 == 2:
                opt.step()
                opt.zero_grad()
            return norm
        return step, batch, net, opt
    agree(build, calls=14, runs=6)


def test_mixed_precision():
    def build():
        net, opt = task()

        def step(x, y):
            opt.zero_grad()
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = net(x)
            loss = ((out.float() - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss
        return step, batch
    agree(build, rtol=2e-2)


# ------------------------------------------------------------------------------------------------------ Python's world
def test_iterators_go_on():
    def build():
        net, opt = task()
        batches = iter([batch(n) for n in range(6)])
        return lambda: stepped(net, opt, *next(batches)), lambda n: (), net
    agree(build, calls=8, runs=4)  # the last two calls raise


def test_a_data_loader_inside():
    def build():
        net, opt = task()
        xs, ys = (torch.cat(t) for t in zip(*[batch(n) for n in range(3)]))

        def epoch():
            return [stepped(net, opt, x, y).item() for x, y in DataLoader(TensorDataset(xs, ys), batch_size=4, shuffle=True)]
        return epoch, lambda n: (), net
    agree(build, calls=5, runs=10)


def test_printing_logging_and_counting():
    def build():
        net, opt = task()
        records = []
        handler = logging.Handler()
        handler.emit = lambda record: records.append(record.getMessage())
        logger = logging.Logger("test")
        logger.addHandler(handler)
        counts = {"calls": 0}

        def step(x, y):
            counts["calls"] += 1
            loss = stepped(net, opt, x, y)
            print("loss of", x.shape, f"{loss.item():.3f}")
            logger.info("call %d: %.3f", counts["calls"], float(loss))
            return loss
        return step, batch, net, lambda: list(records), lambda: dict(counts)
    paths = agree(build, runs=7)
    assert paths.reasons


def test_a_value_in_the_middle():
    def build():
        net, opt = task()

        def step(x, y):
            out = net(x)
            scale = out.abs().max().item()
            opt.zero_grad()
            loss = ((out / (1 + scale) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss
        return step, batch, net
    paths = agree(build, runs=12)
    assert len(paths.segments) == 2


def test_branches_on_values_both_ways():
    def build():
        def f(x):
            y = x * 2 + 1
            if y.sum() > 0:
                return y.relu() - 1
            return y.tanh() * 3
        return f, lambda n: (torch.full((3,), 1.0 if n % 3 else -2.0) + n,)
    agree(build, calls=14, runs=10)


def test_branches_on_python_numbers():
    def build():
        seen_so_far = []

        def f(x):
            seen_so_far.append(len(seen_so_far))
            y = (x * 2).relu()
            if len(seen_so_far) % 3 == 0:
                y = y.sin() + 1
            return y * 3
        return f, lambda n: (torch.arange(4.0) - n,)
    paths = agree(build, calls=16, builds=2, runs=10)
    assert paths.interpreted <= 2


def test_loops_of_any_length():
    def build():
        def f(x, times):
            for _ in range(times):
                x = (x * 0.5).tanh() + 0.1
                if x.sum().item() > 100:
                    break
            return x
        return f, lambda n: (torch.arange(5.0), 1 + n % 4)
    paths = agree(build, calls=12, runs=20)
    assert paths.builds <= 3  # every turn is the same segment


def test_numbers_that_change_become_part_of_the_data():
    def build():
        numbers = iter(range(100))
        return lambda x: x * (next(numbers) * 0.25) + 1.5, lambda n: (torch.arange(4.0),)
    agree(build, calls=12, builds=1, runs=11)


def test_a_rule_written_by_hand_with_a_rate_that_changes():
    def build():
        net, _ = task()
        rates = iter(np.linspace(0.1, 0.01, 20).tolist())

        def step(x, y):
            rate = next(rates)
            ((net(x) - y) ** 2).mean().backward()
            with torch.no_grad():
                for p in net.parameters():
                    p.add_(p.grad, alpha=-rate)
                    p.mul_(1 - rate * 0.1).clamp_(-1 - rate, 1 + rate)
                    p.grad = None
        return step, batch, net
    paths = agree(build, calls=12, runs=9)
    assert paths.builds <= 2


@pytest.mark.parametrize("values", [(0.0, -0.0), (1, 1.0), (True, 1), (float("nan"), float("nan")), (1.0, 1.0 + 2**-52)])
def test_numbers_are_compared_bit_by_bit(values):
    def build():
        return (lambda x, value: torch.copysign(x, torch.full((3,), float(value))) * value + x.double() / value,
                lambda n: (torch.tensor([1, 2, 3]), values[n % 2]))
    agree(build, calls=8)


def test_exceptions_in_the_middle_leave_behind_what_eager_leaves():
    def build():
        weight = torch.ones(3)
        calls = itertools.count()

        def f(x):
            weight.add_(x)
            y = weight * 2
            if next(calls) % 3 == 1:
                raise ValueError("half-way")
            weight.mul_(y.mean())
            return y
        return f, lambda n: (torch.full((3,), 0.1 * n),), weight, lambda: weight._version
    agree(build, calls=12, runs=6)


def test_exceptions_of_kernels_come_at_their_line():
    def build():
        table, log = torch.arange(12.0).reshape(4, 3), []

        def f(at):
            table.add_(1)
            try:
                rows = F.embedding(at, table)
            except IndexError as error:
                log.append(str(error))
                rows = table[:2] * 0
            log.append(len(log))
            table.mul_(0.5)
            return rows
        return f, lambda n: (torch.tensor([n % 5, 1]),), table, lambda: list(log)
    agree(build, calls=12, runs=8)


@pytest.mark.parametrize("fails", [
    lambda x: x.long() // (x.long() - x.long()), lambda x: F.cross_entropy(x.reshape(1, -1), torch.tensor([7])),
    lambda x: x.gather(0, torch.tensor([9])), lambda x: torch.bernoulli(x + 2), lambda x: F.binary_cross_entropy(x, x * 0),
    lambda x: torch.ones(2) + x, lambda x: torch.linalg.inv(torch.zeros(2, 2)), lambda x: F.one_hot(x.long(), 1)])
def test_kernels_that_fail(fails):
    def build():
        state_of, log = torch.zeros(3), []

        def f(x):
            state_of.add_(x)
            try:
                made = fails(x)
            except (RuntimeError, IndexError) as error:
                log.append(type(error).__name__)
                made = None
            state_of.mul_(2)
            return made, len(log)
        return f, lambda n: (torch.tensor([1.0, 2.0, 3.0]),), state_of, lambda: list(log)
    agree(build, calls=5)


def test_hooks_that_count():
    def build():
        net, opt = task()
        counts = {"forward": 0, "tensor": 0, "accumulated": 0, "step": 0}

        def count(name):
            counts[name] += 1
        net[0].register_forward_hook(lambda *given: count("forward"))
        net[2].weight.register_hook(lambda grad: count("tensor") or grad * 2)
        net[2].bias.register_post_accumulate_grad_hook(lambda leaf: count("accumulated"))
        opt.register_step_post_hook(lambda *given: count("step"))
        return lambda x, y: stepped(net, opt, x, y), batch, net, lambda: dict(counts)
    agree(build, builds=1, runs=6)


def test_objects_that_cache():
    class Cache:
        def __init__(self):
            self.keys = None

        def add(self, key):
            self.keys = key if self.keys is None else torch.cat([self.keys, key], 1)
            return self.keys

    def build():
        torch.manual_seed(0)
        project, cache = nn.Linear(4, 4), Cache()

        def attend(x):
            keys = cache.add(project(x))
            return (x @ keys.transpose(1, 2)).softmax(-1) @ keys
        return attend, lambda n: (batch(n)[0][:1].reshape(1, 1, 4),), lambda: cache.keys
    expected, _ = history(build, 6, lambda f: f)
    got, fn = history(build, 6, follow)
    same_seen(expected, got)
    assert fn.paths.steps


def test_a_cache_of_fixed_size():
    def build():
        torch.manual_seed(0)
        project, keys = nn.Linear(4, 4), torch.zeros(1, 8, 4)

        @torch.no_grad()
        def attend(x, at):
            keys.index_copy_(1, at, project(x))
            return (x @ keys.transpose(1, 2)).softmax(-1) @ keys
        return attend, lambda n: (batch(n)[0][:1].reshape(1, 1, 4), torch.tensor([n])), keys
    agree(build)
