"""Compiled functions on a CUDA device: each call is compared with the plain one to the bit, and runs as one CUDA graph. Without
a GPU the host plays one (cuda_host.py)."""

from __future__ import annotations

import gc

import numpy as np
import pytest
from cuda_host import needs_gxx

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim

pytestmark = needs_gxx


@pytest.fixture(autouse=True)
def device(cuda):
    """Every test is on a CUDA device."""


def seen(value):
    """A value as plain data."""
    if isinstance(value, torch.Tensor):
        about = str(value.device), str(value.dtype), tuple(value.stride()), value.requires_grad
        return *about, value.detach().cpu().numpy().copy()
    if isinstance(value, nn.Module):
        return [(n, seen(t), seen(t.grad if t.is_leaf else None)) for n, t in value.state_dict(keep_vars=True).items()]
    if isinstance(value, optim.Optimizer):
        return seen(value.state_dict())
    if isinstance(value, dict):
        return {k: seen(v) for k, v in value.items()}
    return [seen(v) for v in value] if isinstance(value, (list, tuple)) else value


def assert_same(a, b):
    np.testing.assert_equal(a, b)


def programs(fn):
    return [plan.program for plans in fn._compiled.plans.values() for plan in plans]


def graphs(fn):
    """The sizes of a function's graphs; a program without one fails the test."""
    assert programs(fn), fn._compiled.reasons
    assert all(p.graph is not None for p in programs(fn)), [p.refused for p in programs(fn)]
    return [p.graph.size for p in programs(fn)]


def both(build, calls):
    """Runs a program plainly and compiled from the same seed; after each call everything must be the same.

    build() -> (function, what to look at); calls: functions of (function, number of the call).
    """
    made = []
    for wrap in (lambda f: f, torch.compile):
        torch.manual_seed(3)
        function, watched = build()
        function = wrap(function)
        made.append([])
        for n, call in enumerate(calls):
            result = call(function, n)
            made[-1].append((seen(result), seen(watched)))
    for plain, compiled in zip(*made):
        assert_same(plain, compiled)
    return function


def batch(n, size=6):
    draw = np.random.default_rng(n)
    x, y = draw.normal(size=(size, 20)), draw.integers(0, 10, size)
    return torch.tensor(x, dtype=torch.float32).cuda(), torch.tensor(y).cuda()


def mlp(p=0.0):
    return nn.Sequential(nn.Linear(20, 16), nn.ReLU(), nn.Dropout(p), nn.Linear(16, 10)).cuda()


def step_of(model, optimizer):
    def step(x, y):
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        return loss
    return step


OPTIMIZERS = {"sgd": lambda p: optim.SGD(p, 0.1), "momentum": lambda p: optim.SGD(p, 0.1, momentum=0.9),
              "adam": lambda p: optim.Adam(p, 0.01), "adamw": lambda p: optim.AdamW(p, 0.01, weight_decay=0.1),
              "rmsprop": lambda p: optim.RMSprop(p, 0.01), "nadam": lambda p: optim.NAdam(p, 0.01)}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_steps(name):
    """New batches, a learning rate that changes, counts of steps."""
    def build():
        model = mlp()
        optimizer = OPTIMIZERS[name](model.parameters())
        step = step_of(model, optimizer)
        step.optimizer = optimizer
        return step, (model, optimizer)

    def call(step, n):
        group = getattr(step, "_compiled", None)
        found = (step if group is None else group.function).optimizer.param_groups[0]
        found["lr"] = 0.05 / (n + 1) if n != 4 else found["lr"]
        return step(*batch(n))
    assert len(graphs(both(build, [call] * 7))) == 1


def test_tables_are_kept_or_made_again():
    """An optimizer's table of addresses is the graph's; where that has none, it is made again."""
    def build():
        model = mlp()
        return step_of(model, optim.Adam(model.parameters(), 0.01)), model

    def call(step, n):
        if n > 3 and hasattr(step, "_compiled"):
            (program,) = programs(step)
            assert program.redirected is not None
            assert len(program.graph.known) == 1
            if n == 5:
                program.graph.known.clear()
        return step(*batch(n))
    assert len(graphs(both(build, [call] * 7))) == 1


def test_dropout_draws_what_eager_draws():
    def build():
        model = mlp(0.5)
        return step_of(model, optim.SGD(model.parameters(), 0.1)), model
    step = both(build, [lambda step, n: (step(*batch(n)), torch.rand(3, device="cuda"))] * 6)
    assert len(graphs(step)) == 1


def test_other_draws():
    def build():
        def draws(x):
            a = torch.randn(4, 5, device="cuda") + x
            return a, torch.rand_like(x), torch.randperm(7, device="cuda"), x.clone().uniform_(2, 3)
        return draws, ()
    both(build, [lambda f, n: f(torch.full((4, 5), float(n), device="cuda"))] * 5)


def test_draws_that_ask_for_other_memory_do_without_the_graph(monkeypatch):
    """Numbers go on where they were, and the kernels are called one by one."""
    from flambeau.backends.cuda import graphs as cuda_graphs

    def draw(x):
        return x.clone().uniform_(2, 3), torch.randperm(7, device="cuda")

    def refuse(self, nbytes):
        raise cuda_graphs.NotRecordable("work asked for other memory than before")

    x, compiled = torch.ones(5, device="cuda"), torch.compile(draw)
    torch.cuda.manual_seed(5)
    wanted = [seen(draw(x)) for _ in range(6)]
    torch.cuda.manual_seed(5)
    got = [seen(compiled(x)) for _ in range(3)]
    assert graphs(compiled)
    monkeypatch.setattr(cuda_graphs.Again, "block", refuse)
    got += [seen(compiled(x)) for _ in range(3)]
    assert_same(got, wanted)
    assert "other memory" in programs(compiled)[0].refused



def test_seeding_inside():
    def build():
        def draw(x):
            torch.manual_seed(5)
            return x + torch.randn(3, device="cuda")
        return draw, ()
    both(build, [lambda f, n: (f(torch.ones(3, device="cuda")), torch.randn(2, device="cuda"), torch.randn(2))] * 4)


def test_new_shapes_make_new_graphs():
    def build():
        model = mlp()
        return step_of(model, optim.SGD(model.parameters(), 0.1)), model
    step = both(build, [lambda step, n: step(*batch(n, 6 + n % 2))] * 8)
    assert len(graphs(step)) == 2


def test_views_in_place_changes_and_aliases():
    def build():
        buffer = torch.zeros(4, 6, device="cuda")

        def f(x):
            buffer[1:3].add_(x[:2])
            buffer.T[0] *= 2
            y = x.view(2, 12).t().contiguous()
            return y, x[1:], x.mul_(1.5), buffer[0].sum()
        return f, buffer
    f = both(build, [lambda f, n: f(torch.arange(24.0, device="cuda").view(4, 6) + n)] * 5)
    assert programs(f) or f._compiled.followed


def test_results_that_are_held_stay():
    model = mlp()
    step = torch.compile(step_of(model, optim.SGD(model.parameters(), 0.1)))
    plain = mlp()
    plain.load_state_dict(model.state_dict())
    eager = step_of(plain, optim.SGD(plain.parameters(), 0.1))
    held, wanted = [], []
    for n in range(6):
        held.append((step(*batch(n)), [p.grad for p in model.parameters()]))
        wanted.append((eager(*batch(n)), [p.grad for p in plain.parameters()]))
    assert_same(seen(held), seen(wanted))
    graphs(step)


def test_a_result_that_is_a_whole_batch():
    f = torch.compile(lambda x: (x * 2).relu())
    made = [f(torch.full((3, 4), float(n), device="cuda")) for n in range(5)]
    assert [m[0, 0].item() for m in made] == [0.0, 2.0, 4.0, 6.0, 8.0]
    graphs(f)


def test_gradients_that_are_added_up():
    def build():
        model = mlp()
        optimizer = optim.SGD(model.parameters(), 0.1)

        def step(x, y, last):
            loss = F.cross_entropy(model(x), y) / 2
            loss.backward()
            if last:
                optimizer.step()
                optimizer.zero_grad()
            return loss
        return step, model
    both(build, [lambda step, n: step(*batch(n), bool(n % 2))] * 10)


def test_gradients_that_were_there_before_are_kept_or_dropped():
    def build():
        model = mlp()

        def step(x, y):
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            return loss

        def call(f, n):
            if n in (3, 6):
                model.zero_grad(set_to_none=n == 3)
            return f(*batch(n))
        build.call = call
        return step, model
    both(build, [lambda f, n: build.call(f, n)] * 8)


def test_no_grad_and_inference():
    def build():
        model = mlp()
        return (lambda x: model(x).softmax(-1)), model

    def call(f, n):
        with torch.no_grad() if n % 2 else torch.inference_mode():
            return f(batch(n)[0]) + 0
    graphs(both(build, [call] * 8))


def test_a_model_with_a_backward_pass_outside():
    def build():
        model = mlp()

        def call(f, n):
            x, y = batch(n)
            model.zero_grad()
            F.cross_entropy(f(x), y).backward()
        build.call = call
        return (lambda x: model(x)), model
    model = both(build, [lambda f, n: build.call(f, n)] * 5)
    graphs(model)
    assert [plan.backward_program.graph is not None for plans in model._compiled.plans.values() for plan in plans] == [True]


def test_backward_passes_that_wait():
    """Two calls before the first backward pass: what the graph keeps for one must not be overwritten by the other."""
    def build():
        model = mlp()

        def call(f, n):
            (x, y), (u, v) = batch(n), batch(n + 50)
            model.zero_grad()
            first, second = F.cross_entropy(f(x), y), F.cross_entropy(f(u), v)
            first.backward(retain_graph=n == 2)
            second.backward()
            if n == 2:
                first.backward()
            return first, second
        build.call = call
        return (lambda x: model(x).tanh()), model
    graphs(both(build, [lambda f, n: build.call(f, n)] * 5))


def test_parameters_that_move():
    """New memory behind the same parameters: by `.data`, and by load_state_dict, which writes into it."""
    def build():
        model = mlp()
        step = step_of(model, optim.SGD(model.parameters(), 0.1))

        def call(f, n):
            with torch.no_grad():
                if n == 4:
                    model[0].weight.data = model[0].weight.data * 0.5
                if n == 6:
                    model.load_state_dict({k: v * 0.9 for k, v in model.state_dict().items()})
            return f(*batch(n))
        build.call = call
        return step, model
    graphs(both(build, [lambda f, n: build.call(f, n)] * 9))


def test_two_functions_share_a_model():
    def build():
        model = mlp()
        step = step_of(model, optim.Adam(model.parameters(), 0.01))
        score = torch.compile(lambda x: model(x).argmax(-1)) if build.compiled else (lambda x: model(x).argmax(-1))
        build.compiled = True

        def call(f, n):
            loss = f(*batch(n))
            with torch.no_grad():
                return loss, score(batch(n + 50)[0])
        build.call = call
        return step, model
    build.compiled = False
    graphs(both(build, [lambda f, n: build.call(f, n)] * 6))


def test_looks_at_values():
    """What needs a value on the host runs as it is: the Python runs at each call."""
    def build():
        model = mlp()
        inner = step_of(model, optim.SGD(model.parameters(), 0.1))

        def step(x, y):
            loss = inner(x, y)
            return loss.item() > 2, x[x > 0].sum(), float(loss.detach())
        return step, model
    both(build, [lambda f, n: f(*batch(n))] * 5)


def test_exceptions():
    f = torch.compile(lambda x, y: (x @ y).relu())
    for _ in range(3):
        assert f(torch.ones(2, 3, device="cuda"), torch.ones(3, 4, device="cuda")).shape == (2, 4)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        f(torch.ones(2, 3, device="cuda"), torch.ones(4, 4, device="cuda"))
    with pytest.raises(RuntimeError, match="same device"):
        f(torch.ones(2, 3, device="cuda"), torch.ones(3, 4))
    assert f(torch.ones(2, 3, device="cuda"), torch.ones(3, 4, device="cuda")).sum().item() == 24


def test_positions_out_of_range_are_reported():
    words = nn.Embedding(5, 4).cuda()
    f = torch.compile(lambda i: words(i).sum())
    good, bad = torch.arange(4, device="cuda"), torch.full((4,), 7, device="cuda")
    with torch.no_grad():
        for _ in range(3):
            f(good)
        graphs(f)
        with pytest.raises(IndexError):
            f(bad).item()
        assert f(good).item() == words(good).sum().item()


def test_a_scheduler_clipping_and_a_scaler():
    def build():
        model = mlp()
        optimizer = optim.Adam(model.parameters(), 0.01)
        schedule = optim.lr_scheduler.StepLR(optimizer, 2, 0.5)
        scaler = torch.amp.GradScaler("cuda", init_scale=8.0)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = F.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            scaler.step(optimizer)
            scaler.update()
            schedule.step()
            return loss
        return step, (model, optimizer)
    both(build, [lambda f, n: f(*batch(n))] * 6)


def test_clipping_and_a_schedule_outside():
    def build():
        model = mlp()
        optimizer = optim.AdamW(model.parameters(), 0.05)
        schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)

        def step(x, y):
            optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.bfloat16):
                loss = F.cross_entropy(model(x), y)
            loss.backward()
            norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
            optimizer.step()
            return loss, norm

        def call(f, n):
            made = f(*batch(n))
            schedule.step()
            return made
        build.call = call
        return step, (model, optimizer)
    assert len(graphs(both(build, [lambda f, n: build.call(f, n)] * 7))) == 1


def test_batch_norm_moves_its_statistics():
    def build():
        model = nn.Sequential(nn.Linear(20, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 10)).cuda()
        return step_of(model, optim.SGD(model.parameters(), 0.1)), model
    both(build, [lambda f, n: f(*batch(n))] * 6)


def test_work_on_both_devices():
    """The CPU's part runs before each launch; what comes from there to the device in the call keeps it from a program."""
    def build():
        count = torch.zeros(3)

        def f(x):
            count.add_(1)
            return x * 2 + 1
        return f, count
    both(build, [lambda f, n: f(torch.full((2, 2), float(n), device="cuda"))] * 5)

    def build_moving():
        return (lambda x: x.cuda() * 2), ()
    both(build_moving, [lambda f, n: f(torch.full((2, 2), float(n)))] * 4)


def test_changing_numbers_are_read_at_each_call():
    def build():
        return (lambda x, a: x * a + a), ()
    both(build, [lambda f, n: f(torch.ones(5, device="cuda"), 0.5 * n + 0.25)] * 7)


def test_another_stream():
    f = torch.compile(lambda x: (x + 1).exp())
    x = torch.ones(4, device="cuda")
    wanted = (x + 1).exp().tolist()
    for _ in range(3):
        assert f(x).tolist() == wanted
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(3):
            assert f(x).tolist() == wanted
    assert f(x).tolist() == wanted


def test_precision_switches_are_part_of_a_call():
    f = torch.compile(lambda x: x @ x)
    x = torch.ones(4, 4, device="cuda")
    for _ in range(3):
        f(x)
    before = len(programs(f))
    torch.backends.cuda.matmul.allow_tf32 = True
    try:
        f(x)
        assert len(programs(f)) == before + 1
    finally:
        torch.backends.cuda.matmul.allow_tf32 = False


def test_exact_mode():
    model = mlp()
    f = torch.compile(lambda x: model(x).log_softmax(-1), mode="exact")
    with torch.no_grad():
        for n in range(4):
            assert_same(seen(f(batch(n)[0])), seen(model(batch(n)[0]).log_softmax(-1)))
    graphs(f)


def test_memory_goes_back():
    """A program's memory is its own, and everybody's when the program is gone."""
    from flambeau.backends.cuda import memory

    def run():
        model = mlp()
        step = torch.compile(step_of(model, optim.Adam(model.parameters(), 0.01)))
        for n in range(4):
            step(*batch(n))
    run()
    torch.cuda.empty_cache()
    before = memory.of(0).allocated
    for _ in range(3):
        run()
    gc.collect()
    assert memory.of(0).allocated <= before + (1 << 16)


def test_explain():
    model = mlp()
    step = step_of(model, optim.Adam(model.parameters(), 0.01))
    said = torch.compiler.explain(step, *batch(0))
    assert said.way == "skip"
    assert "nodes in one launch; 1 operations are looked at on the host" in str(said)


def test_inside_of_a_graph_that_the_user_makes():
    f, x = torch.compile(lambda x: (x + 1).exp() * 2), torch.zeros(5, device="cuda")
    for _ in range(3):
        f(x)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = f(x)
    for n in range(3):
        x.fill_(float(n))
        graph.replay()
        torch.testing.assert_close(y, (x + 1).exp() * 2)
    assert programs(f)[0].refused is None


def test_kernels_that_look_at_values_are_called_one_by_one():
    """A kernel that waits for the device cannot be part of a graph."""
    f = torch.compile(lambda x: torch.histc(x, 4) * 2)
    for n in range(4):
        x = torch.arange(10.0, device="cuda") * (n + 1)
        assert f(x).tolist() == (torch.histc(x.cpu(), 4) * 2).tolist()
    assert "capturing" in programs(f)[0].refused
    assert "one by one" in str(torch.compiler.explain(lambda x: torch.histc(x, 4) * 2, x))


def test_the_first_draw_of_all_is_in_a_compiled_call(monkeypatch):
    """The device's generator is there before the call is captured, and goes on at each call."""
    from flambeau.creation.random import device_generators
    x = torch.full((4, 5), 2.0, device="cuda")

    def run(wrap):
        monkeypatch.setattr(device_generators, "made", {})
        torch.manual_seed(4)
        f = wrap(lambda x: F.dropout(x.exp(), 0.5) * 2)
        return [seen(f(x)) for _ in range(5)]
    assert_same(run(torch.compile), run(lambda f: f))
