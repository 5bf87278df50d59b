"""Calls that are followed: the Python runs, the kernels come from native programs. Each case is compared with eager mode over
many calls, and must have run programs."""

import contextlib
import copy
import gc
import io
import itertools
import logging
import os
import pickle
import queue
import sys
import threading
import warnings
import weakref

import numpy as np
import pytest
from compiled import same_seen, seen

import flambeau as torch
from flambeau import nn, optim
from flambeau.autograd.state import FOLLOW, state
from flambeau.compiler.capture.tracing import Uncapturable
from flambeau.compiler.follow.matching import native
from flambeau.compiler.follow.paths import Pace, Paths
from flambeau.compiler.follow.promises import Promise
from flambeau.nn import functional as F
from flambeau.utils.data import DataLoader, TensorDataset

pytestmark = pytest.mark.skipif(native() is None, reason="needs a C compiler")


def follow(function, exact=False, fullgraph=False):
    """The function, followed at each call."""
    paths = Paths(function, getattr(function, "__name__", "f"), exact, fullgraph, False)
    paths.pace = None

    def call(*args, **kwargs):
        return paths.call(args, kwargs)
    call.paths = paths
    return call


def history(build, calls, wrap):
    """What can be seen after each call: the result or the error, what was printed, and what build() names."""
    torch.manual_seed(0)
    function, args_of, *parts = build()
    fn = wrap(function)
    found = []
    for n in range(calls):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            try:
                result = seen(fn(*args_of(n)))
            except (RuntimeError, ValueError, IndexError, StopIteration, ZeroDivisionError) as error:
                result = [type(error).__name__, str(error)]
        shown = [p() if callable(p) and not isinstance(p, nn.Module) else p for p in parts]
        found.append([result, said.getvalue(), seen(shown), seen(torch.get_rng_state())])
    return found, fn


def agree(build, calls=8, rtol=1e-5, builds=None, interpreted=None, runs=1, **options):
    """Asserts that following does what eager mode does, and that native programs did the work. Returns the Paths."""
    expected, _ = history(build, calls, lambda f: f)
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        got, fn = history(build, calls, lambda f: follow(f, **options))
    same_seen(expected, got, rtol, "call")
    paths = fn.paths
    assert paths.runs >= runs, (paths.runs, paths.interpreted, paths.reasons)
    if builds is not None:
        assert paths.builds == builds, (paths.builds, paths.reasons)
    if interpreted is not None:
        assert paths.interpreted <= interpreted, paths.interpreted
    return paths


def task(width=8, kind=optim.SGD, **options):
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(4, width), nn.Tanh(), nn.Linear(width, 1))
    return net, kind(net.parameters(), **{"lr": 0.05, **options})


def batch(n):
    make = np.random.RandomState(n)
    return torch.tensor(make.randn(6, 4).astype(np.float32)), torch.tensor(make.randn(6, 1).astype(np.float32))


def stepped(net, opt, x, y):
    opt.zero_grad()
    loss = ((net(x) - y) ** 2).mean()
    loss.backward()
    opt.step()
    return loss


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


# ------------------------------------------------------------------------------------------------------------- memory
def test_kept_activations():
    def build():
        net, opt = task()
        kept, calls = [], itertools.count()

        def step(x, y):
            hidden = net[1](net[0](x))
            if next(calls) % 4 == 1:
                kept.append(hidden.detach())
            opt.zero_grad()
            loss = ((net[2](hidden) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss
        return step, batch, net, lambda: list(kept)
    agree(build, calls=14, runs=8)


def test_what_is_kept_for_good_is_kept_from_then_on():
    def build():
        kept = []
        return lambda x: kept.append((x * 2).relu()) or kept[-1] + 1, lambda n: (torch.arange(4.0) - n,), lambda: list(kept)
    agree(build, builds=1, runs=7)


def test_results_have_memory_of_their_own():
    def build():
        kept = []
        return lambda x: x * 2 + 1, lambda n: (torch.arange(400_000.0) - n,), lambda: kept
    _, fn = history(build, 3, follow)
    results = [fn(torch.full((1000,), float(n))) for n in range(5)]
    assert [r[0].item() for r in results] == [2.0 * n + 1 for n in range(5)]
    assert len({r.data_ptr() for r in results}) == 5 and all(type(r._array) is np.ndarray for r in results)


def test_arguments_that_share_memory_are_told_apart_each_time():
    def build():
        store = torch.zeros(12)

        def f(x, y):
            x.add_(1)
            y.mul_(2)
            return x + y

        def args(n):
            return [(store[:4], store[4:8]), (store[:4], store[:4]), (store[:4], store[2:6]), (store[4:8], store[:4])][n % 4]
        return f, args, store
    agree(build, calls=24, runs=8)


def test_aliases_of_what_is_changed():
    def build():
        weight = torch.arange(6.0)
        view, bare, turned = weight[2:4], weight.detach(), weight.view(2, 3).t()

        def f(x):
            weight.mul_(0.5)
            a = view + x[:2]
            bare.add_(1)
            b = turned.sum(1) + weight.view(2, 3)[0]
            view.copy_(a)
            return a, b, bare * 2
        return f, lambda n: (torch.arange(3.0) + n,), weight, view
    agree(build, builds=1, runs=7)


def test_a_parameter_that_gets_other_memory():
    def build():
        net, opt = task()
        calls = itertools.count()

        def step(x, y):
            if next(calls) == 4:
                net[0].weight.data = net[0].weight.data.clone() * 0.5
            return stepped(net, opt, x, y)
        return step, batch, net
    agree(build, builds=1, runs=6)


def test_slices_that_move():
    def build():
        data = torch.arange(200.0)
        calls = itertools.count()

        def f(x):
            n = next(calls)
            return torch.stack([data[7 * n:7 * n + 4], data[3 * n + 90:3 * n + 94]]) * x
        return f, lambda n: (torch.full((4,), 0.5),)
    agree(build, builds=1, runs=7)


def test_memory_that_numpy_sees():
    def build():
        outside = np.arange(4, dtype=np.float32)
        shared, own = torch.from_numpy(outside), torch.arange(4.0)
        window = own.numpy()

        def f(x):
            a = shared * x
            outside[0] += 1           # between two reads
            b = shared * x
            c = own + x
            window[1] += 1
            d = own + x
            shared.add_(1)
            return a, b, c, d, float(outside.sum())
        return f, lambda n: (torch.full((4,), float(n)),), lambda: outside.copy(), own
    agree(build, runs=7)


def test_numpy_in_the_middle():
    def build():
        def f(x):
            y = (x * 2).tanh()
            z = torch.from_numpy(np.cumsum(y.numpy()))
            return z * y + np.float32(0.5)
        return f, lambda n: (torch.arange(4.0) - n,)
    agree(build, runs=12)


def test_a_numpy_index_that_changes():
    def build():
        at = np.array([0, 1])

        def f(x):
            a = (x * 2)[at]
            at[:] = (at + 1) % 4
            return a + (x * 3)[at]
        return f, lambda n: (torch.arange(4.0),), lambda: at.copy()
    agree(build)


@pytest.mark.parametrize("look", [
    lambda t: t.item(), lambda t: float(t), lambda t: bool(t > 0), lambda t: t.tolist(), lambda t: str(t), lambda t: f"{t:.3f}",
    lambda t: t.numpy().tolist(), lambda t: np.asarray(t).tolist(), lambda t: pickle.loads(pickle.dumps(t)).item(),
    lambda t: copy.deepcopy(t).item(), lambda t: t.untyped_storage().tolist(), lambda t: t.data_ptr() != 0, lambda t: int(t),
    lambda t: torch.equal(t, t), lambda t: t.is_nonzero(), lambda t: sum(map(float, t.reshape(1))), lambda t: t in t.reshape(1),
    lambda t: len(t.reshape(1).nonzero()), lambda t: np.from_dlpack(t).tolist(), lambda t: np.sqrt(np.abs(t.numpy())).item(),
    lambda t: torch.save(t, io.BytesIO()), lambda t: t.reshape(1)[torch.tensor([True])].item(),
    lambda t: memoryview(t.numpy())[()]], ids=range(23))
def test_looks(look):
    def build():
        total = torch.zeros(())

        def f(x):
            loss = (x * 2).sum()
            total.add_(loss)
            first = look(loss), look(total)
            total.mul_(0.5)
            return first, look(total), loss + 1
        return f, lambda n: (torch.arange(3.0) + n,), total
    agree(build, calls=5, runs=6)


def test_elements_that_are_not_there_are_never_shown():
    """Arrays that are handed out stay promises to NumPy until the program has run."""
    outcome = []

    def f(x):
        y = (x * 2).relu()
        assert type(y._array) is Promise
        window = y._array[1:]
        outcome.append((y._array + 0).tolist())
        assert type(y._array) is np.ndarray is type(window)
        z = x + 1
        outcome.append([memoryview(z._array.data).tolist(), np.sqrt(y._array * y._array).tolist()])
        return y

    g = follow(f)
    for n in range(4):
        g(torch.tensor([n, n + 1.0]))
    assert outcome[-2:] == [[6.0, 8.0], [[4.0, 5.0], [6.0, 8.0]]]


# ------------------------------------------------------------------------------------------- threads, modes, the process
def test_another_thread_sees_what_is_pending():
    def build():
        asked, answers = queue.Queue(), queue.Queue()
        weight = torch.ones(3)

        def serve():
            while (t := asked.get()) is not None:
                answers.put([(t * 2).tolist(), weight.tolist(), (weight + 1).sum().item()])
        thread = threading.Thread(target=serve)

        def f(x):
            y = (x * 3).relu()
            weight.add_(y)
            asked.put(y)
            seen_there = answers.get()
            weight.mul_(0.5)
            return y + weight, seen_there

        def args(n):
            if not thread.is_alive():
                thread.start()
            return (torch.arange(3.0) + n,)
        build.stop = lambda: asked.put(None)
        return f, args, weight
    expected, _ = history(build, 6, lambda f: f)
    build.stop()
    got, fn = history(build, 6, follow)
    build.stop()
    same_seen(expected, got)
    assert fn.paths.runs >= 6


def test_two_threads_call_one_function():
    net, _ = task()
    f = follow(lambda x: net(x).sum(1) * 2)
    errors = []

    def work(n):
        for i in range(60):
            x = torch.full((3, 4), float(n + i))
            if not torch.allclose(f(x), net(x).sum(1) * 2):
                errors.append((n, i))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(3)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors and f.paths.runs


def test_other_threads_run_eagerly_meanwhile():
    started, done, results = threading.Event(), threading.Event(), []

    def other():
        started.wait()
        results.append((state.mode & FOLLOW, type((torch.ones(3) + 1)._array)))
        done.set()

    def f(x):
        y = x + 1
        started.set()
        done.wait()
        return y * 2
    thread = threading.Thread(target=other)
    thread.start()
    assert follow(f)(torch.ones(2)).tolist() == [4.0, 4.0]
    thread.join()
    assert results == [(0, np.ndarray)]


def test_processes_that_are_forked_inside():
    def build():
        def f(x):
            y = x * 2
            if os.fork() == 0:
                os._exit(0 if (y + 1).tolist() == ((x * 2) + 1).tolist() and not state.mode & FOLLOW else 1)
            _, status = os.wait()
            return y + 1, status
        return f, lambda n: (torch.arange(3.0) + n,)
    agree(build, calls=4)


def test_grad_modes_inside():
    def build():
        net, _ = task()

        def f(x, y):
            with torch.no_grad():
                a = net(x)
            with torch.inference_mode():
                b = net(x) + 1
            c = net(x)
            return a.requires_grad, b.is_inference(), c.requires_grad, a, b, c, torch.is_grad_enabled()
        return f, batch
    agree(build, builds=1, runs=7)


def test_a_grad_mode_that_is_left_behind():
    def f(x):
        y = x * 2
        torch.set_grad_enabled(False)
        return y
    try:
        for _ in range(3):
            assert follow(f)(torch.ones(2)).tolist() == [2.0, 2.0] and not torch.is_grad_enabled() and not state.mode & FOLLOW
            torch.set_grad_enabled(True)
    finally:
        torch.set_grad_enabled(True)


def test_the_backward_pass_outside():
    def build():
        net, opt = task()
        forward = build.wrap(lambda x: net(x))

        def step(x, y):
            opt.zero_grad()
            loss = ((forward(x) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss
        return step, batch, net
    results = []
    for wrap in (lambda f: f, follow):
        build.wrap = wrap
        results.append(history(build, 6, lambda f: f)[0])
    same_seen(*results)


def test_second_derivatives_inside_and_outside():
    def build():
        def f(x):
            y = (x ** 3).sum()
            slope, = torch.autograd.grad(y, x, create_graph=True)
            return slope, torch.autograd.grad(slope.sum(), x, retain_graph=True)[0]

        def args(n):
            return (torch.tensor([1.0, 2.0, float(n)], requires_grad=True),)
        return f, args
    agree(build)
    f = follow(lambda x: torch.autograd.grad((x ** 3).sum(), x, create_graph=True)[0])
    for n in range(4):
        x = torch.tensor([1.0, n], requires_grad=True)
        assert torch.autograd.grad(f(x).sum(), x)[0].tolist() == [6.0, 6.0 * n]


def test_nested_functions_are_part_of_the_outer_one():
    inner = follow(lambda x: x.tanh() + 1)
    outer = follow(lambda x: inner(x * 2) * 3)
    for n in range(5):
        x = torch.arange(3.0) + n
        assert torch.allclose(outer(x), ((x * 2).tanh() + 1) * 3)
    assert outer.paths.runs == 4 and not inner.paths.calls


def test_random_numbers():
    def build():
        drop = nn.Dropout(0.4)
        generator = torch.Generator().manual_seed(3)

        def f(x):
            return (drop(x), torch.rand(3), torch.randn(2, 2), torch.randint(0, 9, (4,)), torch.randperm(5), torch.rand_like(x),
                    torch.normal(0.0, 2.0, (3,), generator=generator), torch.bernoulli(torch.full((4,), 0.5)), x.uniform_(0, 1))
        return f, lambda n: (torch.ones(6),)
    agree(build, runs=7)


def test_seeds_inside():
    def build():
        def f(x, seed):
            torch.manual_seed(seed)
            a = torch.rand(3) + x
            before = torch.get_rng_state()
            b = torch.rand(3)
            torch.set_rng_state(before)
            return a, b, torch.rand(3), torch.initial_seed()
        return f, lambda n: (torch.ones(3), n % 3)
    agree(build)


def test_exact_mode_keeps_every_bit():
    def build():
        net, opt = task(width=32, kind=optim.Adam)
        return lambda x, y: stepped(net, opt, x, y), batch, net, opt
    agree(build, rtol=0, exact=True, runs=6)


def test_fullgraph_refuses_looks_and_nothing_else():
    f = follow(lambda x: (x * 2).sort().values.cumsum(0), fullgraph=True)
    for n in range(3):
        assert f(torch.tensor([3.0, n])).tolist() == (torch.tensor([3.0, n]) * 2).sort().values.cumsum(0).tolist()
    with pytest.raises(Uncapturable, match=r"test_compile_follow.py, line \d+"):
        follow(lambda x: x * (x * 2).sum().item(), fullgraph=True)(torch.ones(2))
    assert not state.mode & FOLLOW


def test_unusual_modes_are_left_to_eager():
    f = follow(lambda x: x * 2)
    with torch.autograd.set_detect_anomaly(True):
        assert f(torch.ones(2)).tolist() == [2.0, 2.0]
    assert not f.paths.calls


def test_meta_and_sparse_tensors_inside():
    def build():
        table = nn.Embedding(6, 3, sparse=True)
        opt = optim.SparseAdam(table.parameters(), lr=0.1)

        def f(at):
            opt.zero_grad()
            loss = table(at).pow(2).sum()
            loss.backward()
            opt.step()
            return loss, (torch.empty(3, 2, device="meta") @ torch.empty(2, 5, device="meta")).shape
        return f, lambda n: (torch.tensor([n % 6, 2, 2]),), table
    agree(build)


# ------------------------------------------------------------------------------------------------------------ limits
def test_nothing_is_left_behind():
    """No array stays a promise, no memory stays alive, however a call ends."""
    kept = []

    def f(x, fails):
        y = (x * 2).relu()
        kept.append(weakref.ref(y))
        view = y[1:]
        x.add_(1)
        if fails:
            raise ValueError
        return view

    g = follow(f)
    for n in range(8):
        x = torch.arange(4.0)
        with contextlib.suppress(ValueError):
            assert type(g(x, n % 3 == 2)._array) is np.ndarray
        assert type(x._array) is np.ndarray and state.follower is None
    gc.collect()
    assert all(r() is None for r in kept)


@pytest.mark.parametrize("threshold", [1, 2, 3, 5, 7, 11])
def test_finalizers_that_compute(threshold):
    """The collector may run Python at any time, also while a kernel call is being compared or written down."""
    done = []

    class Loop:
        def __init__(self):
            self.me = self

        def __del__(self):
            done.append((torch.ones(3) * 2 + 1).sum().item())

    def f(x):
        for _ in range(4):
            Loop()
            x = (x * 2).tanh() + 1
        return x

    def build():
        net, opt = task(kind=optim.SGD, momentum=0.9)

        def step(x, y):
            Loop()
            loss = stepped(net, opt, f(x), y)
            Loop()
            return loss
        return step, batch, net, opt
    g, before = follow(f), gc.get_threshold()
    gc.collect()
    gc.set_threshold(threshold)
    try:
        for n in range(30):
            x = torch.arange(3.0) + n
            assert torch.allclose(g(x), f(x))
        agree(build, calls=12)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert done == [9.0] * (240 + 2 * 12 * 6) and g.paths.runs


def test_an_interrupt_leaves_what_it_leaves_in_eager_mode():
    """KeyboardInterrupt at every line of the follower in turn: each kernel call has happened, or it has not."""
    files = ("follower.py", "recording.py", "steps.py")
    weight, state_of = torch.zeros(3), []

    def f(x):
        for n in range(3):
            state_of.append(n)
            weight.add_(x)
            state_of.append("added")
        return weight * 2
    g = follow(f)
    for _ in range(3):
        g(torch.ones(3))
    left = [0]

    def trace(frame, event, arg):
        if frame.f_code.co_filename.endswith(files):
            if event == "line":
                left[0] -= 1
                if left[0] == 0:
                    raise KeyboardInterrupt
            return trace
        return None
    for n in itertools.count(1):
        weight.zero_()
        state_of.clear()
        left[0] = n
        sys.settrace(trace)
        try:
            g(torch.ones(3))
            finished = True
        except KeyboardInterrupt:
            finished = False
        finally:
            sys.settrace(None)
        added = state_of.count("added")
        assert type(weight._array) is np.ndarray and not state.mode & FOLLOW and state.follower is None
        assert weight[0].item() in (added, state_of.count(0) + state_of.count(1) + state_of.count(2)), (n, weight, state_of)
        assert weight[0].item() == weight[2].item()
        if finished:
            break
    assert n > 100
    assert g(torch.ones(3))[0].item() == 2 * weight[0].item()


def test_programs_go_away_with_their_function():
    f = follow(lambda x: x * 2 + 1)
    for n in range(4):
        f(torch.ones(n % 2 + 2))
    programs = [weakref.ref(end.program) for end in f.paths.segments]
    gc.disable()
    try:
        del f
        assert programs and all(p() is None for p in programs)
    finally:
        gc.enable()


def test_calls_that_never_repeat_are_left_to_eager_with_one_warning(monkeypatch):
    monkeypatch.setattr("flambeau.compiler.follow.paths._STEPS", 20)
    f = follow(lambda x: x * 2 + 1)
    with pytest.warns(RuntimeWarning, match="runs eagerly") as caught:
        for n in range(20):
            assert f(torch.ones(n + 1)).shape == (n + 1,)
    assert len(caught) == 1 and f.paths.steps <= 22


def test_the_quicker_way_is_taken():
    for quick in (True, False):
        pace, taken = Pace(), []
        for _ in range(400):
            eager = pace.eager()
            taken.append(eager)
            pace.took(1.0 if eager is quick else 2.0)
        assert sum(way is quick for way in taken) > 320 and {*taken} == {True, False}


def test_calls_that_are_quicker_eagerly_go_straight_to_the_function():
    calls = []

    def f(x):
        calls.append(len(calls))
        return x + 1
    g = torch.compile(f)
    made, x = g._compiled, torch.ones(2)
    made.followed, made.paths.pace.way, made.paths.pace.left = 1000, True, 50
    assert g(x).tolist() == [2, 2] and made.straight == 48
    for n in range(48):
        assert g(x).tolist() == [2, 2] and made.straight == 47 - n
    assert made.paths.pace.left == 1 and g(x).tolist() == [2, 2] and made.paths.pace.left == 0  # the ways are compared again
    made.straight = 10
    torch.compiler.reset()
    assert made.straight == 0 and calls == [*range(50)]


def test_calls_that_always_meet_something_new_are_run_eagerly():
    paths, ran = Paths(lambda x, n: torch.ones(n) * x, "f", False, False, False), []
    paths.function = lambda x, n: ran.append(state.mode & FOLLOW) or (torch.ones(n) * x).sum()
    for n in range(60):
        assert paths.call((torch.ones(1), n + 1), {}).item() == n + 1
    assert ran[0] and sum(map(bool, ran)) < 40 and not ran[-1]


def test_following_leaves_the_process_alone():
    before = gc.isenabled(), gc.get_freeze_count(), torch.Tensor.__dict__["_array"]
    inside = []

    def f(x):
        inside.append((gc.isenabled(), gc.get_freeze_count(), torch.Tensor.__dict__["_array"]))
        return x * 2
    g = follow(f)
    for _ in range(3):
        g(torch.ones(2))
    assert all(found == before for found in inside)
