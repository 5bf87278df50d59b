"""profiler.profile: PyTorch's rows, names and columns for the same programs, and results that stay what they were."""

from __future__ import annotations

import collections
import os
import threading

import pytest
from profiles import LIBRARIES, a_line_of_mine, both, leaf, prepared, profiled, top, training

import flambeau
from flambeau.autograd import engine
from flambeau.autograd.state import PROFILE, state
from flambeau.ops.core import overrides


# ------------------------------------------------------------------------------------------------- rows, as PyTorch's
def arithmetic(t, x, model, optimizer):
    (x * 2 + x - 1).exp().sum().backward()


def operators(t, x, model, optimizer):
    _ = 1 - x, x / 2, -x, x**2, x @ x.t(), x > 0, x.mean(0), x.detach(), x.clone(), x.double(), x.view(-1), x.reshape(2, 10)


def indexing(t, x, model, optimizer):
    _ = x[0], x[1:], x.max(0), t.cat([x, x]), t.stack([x, x]), x.unsqueeze(0), x.sort(), t.where(x > 0, x, x)


def functions(t, x, model, optimizer):
    f = t.nn.functional
    _ = f.softmax(x, -1), f.layer_norm(x, (4,)), f.gelu(x), f.log_softmax(x, 1), f.relu(x), f.silu(x), t.sigmoid(x)
    _ = t.zeros(3), t.arange(3), t.full((2,), 1.0), t.randn(3), t.ones_like(x), t.tril(x), t.maximum(x, x), x.var(), x.cumsum(0)


def in_place(t, x, model, optimizer):
    with t.no_grad():
        x.add_(1)
        x.mul_(2)
        x += 1
        x.zero_()
        x.fill_(3.0)


@pytest.mark.parametrize("program", [arithmetic, operators, indexing, functions, in_place, training], ids=lambda f: f.__name__)
def test_rows_are_pytorchs(program):
    ours, theirs = both(program)
    assert top(ours) == top(theirs)


def test_nodes_hold_what_they_run():
    ours, theirs = both(arithmetic)
    for p in ours, theirs:
        by_name = {e.name: e for e in p.events()}
        outer = by_name["autograd::engine::evaluate_function: MulBackward0"]
        assert [c.name for c in outer.cpu_children][0] == "MulBackward0"
        assert by_name["MulBackward0"].cpu_parent is outer and by_name["MulBackward0"].scope == 1
        name = "torch::autograd::AccumulateGrad"
        assert by_name[name].cpu_parent.name == f"autograd::engine::evaluate_function: {name}"


def test_sequence_numbers_tie_nodes_to_operations():
    ours, theirs = both(arithmetic)
    for p in ours, theirs:
        first = {e.name: e for e in reversed(p.events())}
        for operation, node in (("mul", "Mul"), ("add", "Add"), ("sub", "Sub"), ("exp", "Exp"), ("sum", "Sum")):
            number = first[f"aten::{operation}"].sequence_nr
            assert number >= 0 and number == first[f"{node}Backward0"].sequence_nr
            assert first[f"{node}Backward0"].fwd_thread == first[f"aten::{operation}"].thread
        assert first["aten::sub"].sequence_nr == first["aten::mul"].sequence_nr + 2


def test_loaders_and_optimizers_have_rows():
    def program(t):
        data = t.utils.data.TensorDataset(t.arange(6.0))
        for _ in t.utils.data.DataLoader(data, batch_size=3):
            pass
        p = t.nn.Parameter(t.ones(2))
        optimizer = t.optim.Adam([p])
        p.sum().backward()
        optimizer.step()
        optimizer.zero_grad()

    found = [collections.Counter([e.name for e in profiled(t, program).events() if "#" in e.name]) for t in LIBRARIES]
    assert found[0] == found[1] == {"enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__": 3,
                                    "Optimizer.step#Adam.step": 1, "Optimizer.zero_grad#Adam.zero_grad": 1}


# --------------------------------------------------------------------------------------------------- what is noted
def test_shapes_and_numbers():
    def program(t):
        x = t.ones(2, 3)
        t.mm(x, x.t())
        x.sum(1)

    for t in LIBRARIES:
        p = profiled(t, program, record_shapes=True)
        event = next(e for e in p.events() if e.name == "aten::mm")
        assert event.input_shapes == [[2, 3], [3, 2]] and event.concrete_inputs == [None, None]
        assert next(e for e in p.events() if e.name == "aten::sum").input_shapes[0] == [2, 3]
        assert not any(e.input_shapes for e in profiled(t, program).events())


@pytest.mark.parametrize("program, name, flops", [
    (lambda t: t.mm(t.ones(3, 4), t.ones(4, 5)), "aten::mm", 120),
    (lambda t: t.bmm(t.ones(2, 3, 4), t.ones(2, 4, 5)), "aten::bmm", 240),
    (lambda t: t.nn.functional.conv2d(t.ones(2, 3, 8, 8), t.ones(4, 3, 3, 3)), "aten::conv2d", 15552),
    (lambda t: t.ones(3, 4) * t.ones(3, 4), "aten::mul", 12), (lambda t: t.ones(5) + t.ones(5), "aten::add", 5)])
def test_flops(program, name, flops):
    for t in LIBRARIES:
        p = profiled(t, program, with_flops=True, record_shapes=True)
        assert next(e for e in p.events() if e.name == name).flops == flops


def test_flops_of_a_step_add_up():
    total = [sum(e.flops for e in p.events() if e.name in ("aten::addmm", "aten::mm", "aten::linear"))
             for p in both(training, with_flops=True, record_shapes=True)]
    assert total[0] == total[1] > 0


def test_memory_is_counted_where_it_is_taken_and_given_back():
    def program(t):
        x = t.ones(1000)
        y = x * 2
        z = y.view(10, 100)
        y.add_(1)
        del x, y, z

    for t in LIBRARIES:
        p = profiled(t, program, profile_memory=True)
        usage = {e.name: e.cpu_memory_usage for e in p.events() if e.cpu_parent is None and e.name != "[memory]"}
        assert {k: usage[k] for k in ("aten::ones", "aten::mul", "aten::view", "aten::add_")} == {
            "aten::ones": 4000, "aten::mul": 4000, "aten::view": 0, "aten::add_": 0}
        assert sum(e.cpu_memory_usage for e in p.events() if e.name == "[memory]") == -8000
        assert all(e.cpu_memory_usage == 0 for e in profiled(t, program).events())


def test_large_results_count_what_was_asked_for():
    p = profiled(flambeau, lambda t: t.ones(300_001) * 2, profile_memory=True)  # blocks of the pool are larger
    assert next(e for e in p.events() if e.name == "aten::mul").cpu_memory_usage == 4 * 300_001


def test_stacks_name_the_users_lines():
    line = a_line_of_mine.__code__.co_firstlineno + 1
    p = profiled(flambeau, lambda t: a_line_of_mine(t, leaf(t, 3)).sum().backward(), with_stack=True)
    events = {e.name: e for e in p.events()}
    assert events["aten::exp"].stack[0].endswith(f"profiles.py({line}): a_line_of_mine")
    assert events["ExpBackward0"].stack == events["aten::exp"].stack  # a node has the stack of what made it
    assert not any("flambeau/ops" in frame or "flambeau/autograd" in frame for e in p.events() for frame in e.stack)
    grouped = p.key_averages(group_by_stack_n=1)
    assert all(len(a.stack) <= 1 for a in grouped)
    assert "Source Location" in grouped.table() and f"profiles.py({line}): a_line_of_mine" in grouped.table()


def test_modules_are_rows():
    model = flambeau.nn.Sequential(flambeau.nn.Linear(4, 8), flambeau.nn.ReLU(), flambeau.nn.Linear(8, 3))
    p = profiled(flambeau, lambda t: model(t.ones(2, 4)), with_modules=True)
    outer = next(e for e in p.events() if e.name == "nn.Module: Sequential_0")
    assert [c.name for c in outer.cpu_children] == ["nn.Module: Linear_0", "nn.Module: ReLU_0", "nn.Module: Linear_1"]
    assert [c.name for c in outer.cpu_children[0].cpu_children] == ["aten::linear"]
    assert not any(e.name.startswith("nn.Module") for e in profiled(flambeau, lambda t: model(t.ones(2, 4))).events())


def test_record_function_names_blocks_and_functions():
    for t in LIBRARIES:
        @t.profiler.record_function("whole")
        def program(t):
            with t.profiler.record_function("inner"):
                t.ones(2) * 2

        p = profiled(t, program)
        events = {e.name: e for e in p.events()}
        assert events["inner"].cpu_parent is events["whole"] and events["aten::mul"].cpu_parent is events["inner"]
        assert events["whole"].is_user_annotation and events["whole"].scope == 7
        assert not events["aten::mul"].is_user_annotation


# -------------------------------------------------------------------------------------------------- events and tables
FIELDS = """id node_id name overload_name trace_name time_range thread fwd_thread kernels count cpu_children cpu_parent
    input_shapes concrete_inputs kwinputs stack scope use_device cpu_memory_usage self_cpu_memory_usage device_memory_usage
    self_device_memory_usage is_async is_remote sequence_nr device_type device_index device_resource_id is_legacy flops
    is_user_annotation cpu_time cpu_time_total self_cpu_time_total cpu_time_str cpu_time_total_str self_cpu_time_total_str
    device_time device_time_total self_device_time_total key self_cpu_percent total_cpu_percent""".split()


def test_events_have_pytorchs_fields():
    ours, theirs = both(arithmetic)
    for a, b in ((ours.events()[0], theirs.events()[0]), (ours.key_averages()[0], theirs.key_averages()[0])):
        assert not [f for f in FIELDS if hasattr(b, f) and not hasattr(a, f)]
    for p in ours, theirs:
        for e in p.events():
            assert e.time_range.elapsed_us() == e.cpu_time_total >= sum(c.cpu_time_total for c in e.cpu_children) - 1e-6
            assert (e.count, e.node_id, e.is_async, e.is_remote, e.thread) == (1, -1, False, False, 1)
            assert all(c.cpu_parent is e for c in e.cpu_children)


def header(text):
    return [line for line in text.splitlines() if line.lstrip().startswith("Name")][0].split("  ")


@pytest.mark.parametrize("options", [{}, {"profile_memory": True}, {"record_shapes": True},
                                     {"record_shapes": True, "with_flops": True, "profile_memory": True}], ids=str)
@pytest.mark.parametrize("group", [{}, {"group_by_input_shape": True}], ids=str)
def test_tables_have_pytorchs_columns(options, group):
    def columns(p):
        text = p.key_averages(**group).table(sort_by="cpu_time_total", row_limit=3)
        rule, names, again, *rows, last, total = text.splitlines()
        assert rule == again == last and len({len(line) for line in (rule, names, *rows)}) == 1 and len(rows) == 3
        assert total.startswith("Self CPU time total: ")
        assert [len(w) for w in rule.split("  ")[1:6]] == [12] * 5
        return [n.strip() for n in names.split("  ") if n.strip()]

    ours, theirs = both(training, **options)
    assert columns(ours) == columns(theirs)


def test_tables_sort_shorten_and_head():
    p = profiled(flambeau, lambda t: training(t, *prepared(t)))
    averages = p.key_averages()
    text = averages.table(sort_by="count", row_limit=2, header="MY HEADER", top_level_events_only=True, time_unit="ms")
    lines = text.splitlines()
    assert set(lines[0]) == {"="} and lines[1] == "MY HEADER"
    assert lines[3] == "This report only display top-level ops statistics"
    assert "us" not in lines[-1] and lines[-1].endswith("ms")
    shown = lines[7:9]
    counts = [int(line.split()[-1]) for line in shown]
    assert counts == sorted(counts, reverse=True)
    assert "autograd::engine::eva..." in averages.table(max_name_column_width=24)
    assert averages.table(max_name_column_width=None).count("...") == 0
    assert flambeau.autograd.profiler.EventList().table() == ""


def test_averages_add_up():
    p = profiled(flambeau, lambda t: [t.ones(n) * 2 for n in (1, 2, 2)], record_shapes=True)
    mul = {str(a.input_shapes): a for a in p.key_averages(group_by_input_shape=True) if a.key == "aten::mul"}
    assert {k: a.count for k, a in mul.items()} == {"[[1], []]": 1, "[[2], []]": 2}
    whole = next(a for a in p.key_averages() if a.key == "aten::mul")
    assert whole.count == 3 and whole.input_shapes == "" and whole.cpu_time == pytest.approx(whole.cpu_time_total / 3)
    total = p.events().total_average()
    assert total.key == "Total" and total.count == len(p.events())
    assert p.key_averages().self_cpu_time_total == pytest.approx(p.events().self_cpu_time_total)


# ---------------------------------------------------------------------------------------------------- on and off
def step(t):
    x, model, optimizer = prepared(t)
    for _ in range(3):
        optimizer.zero_grad()
        loss = t.nn.functional.mse_loss(t.tanh(model(x)), t.ones(5, 3))
        loss.backward()
        optimizer.step()
    return [loss, x.grad, *model.parameters()]


def test_results_stay_what_they_were():
    everything = dict.fromkeys(("record_shapes", "with_stack", "profile_memory", "with_flops", "with_modules"), True)
    with flambeau.profiler.profile(**everything):
        measured = step(flambeau)
    for a, b in zip(measured, step(flambeau), strict=True):
        assert flambeau.equal(a, b)


def test_a_gradient_is_still_taken_over_without_a_copy(monkeypatch):
    copies = []
    monkeypatch.setattr(engine, "_copy_like", lambda grad, tensor: copies.append(grad) or grad.clone())
    x = flambeau.ones(1000, requires_grad=True)
    with flambeau.profiler.profile():
        (x * 3).sum().backward()
    assert not copies and x.grad.eq(3).all()
    x.grad = None
    (x + 0).backward(flambeau.ones(1000))  # a gradient that the user holds is copied: the test can fail
    assert len(copies) == 1


def test_nothing_is_left_behind():
    plain = flambeau.utils.data.iterators._BaseDataLoaderIter.__next__
    active, mode = overrides.active, state.mode
    with pytest.raises(ZeroDivisionError), flambeau.profiler.profile(with_modules=True):
        assert state.mode & PROFILE and flambeau.autograd._profiler_enabled()
        1 / 0
    assert flambeau.utils.data.iterators._BaseDataLoaderIter.__next__ is plain
    assert (overrides.active, state.mode, state.profiler) == (active, mode, None) and not flambeau.autograd._profiler_enabled()
    assert not flambeau.nn.hooks._global_forward_pre_hooks


def test_a_module_around_a_compiled_call_ends_with_it():
    class Outer(flambeau.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = flambeau.compile(flambeau.nn.Linear(3, 3))

        def forward(self, x):
            return self.inner(x).relu()

    model = Outer()
    for _ in range(3):
        model(flambeau.ones(2, 3))
    p = profiled(flambeau, lambda t: model(t.ones(2, 3)).exp(), with_modules=True)
    events = {e.name: e for e in p.events()}
    assert events["aten::relu"].cpu_parent is events["nn.Module: Outer_0"] and events["aten::exp"].cpu_parent is None
    assert any(name.startswith("Torch-Compiled Region") for name in events)  # also where nothing can be built


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process_is_not_measured():
    with flambeau.profiler.profile():
        child = os.fork()
        if not child:
            os._exit(0 if state.profiler is None and not state.mode & PROFILE else 1)
        assert os.waitpid(child, 0)[1] == 0
        assert state.mode & PROFILE


def test_only_this_thread_is_measured():
    def other():
        flambeau.ones(3).exp()

    with flambeau.profiler.profile() as p:
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
        flambeau.ones(3) * 2
    assert {e.name for e in p.events()} == {"aten::ones", "aten::mul"}


def test_one_profiler_at_a_time():
    with flambeau.profiler.profile(), pytest.raises(RuntimeError, match="already enabled"):
        flambeau.profiler.profile().start()


def test_collection_can_pause():
    with flambeau.profiler.profile() as p:
        flambeau.ones(2).exp()
        p.toggle_collection_dynamic(False)
        flambeau.ones(2).sin()
        p.toggle_collection_dynamic(True)
        flambeau.ones(2).cos()
    names = [e.name for e in p.events()]
    assert "aten::exp" in names and "aten::cos" in names and "aten::sin" not in names


def test_errors_end_their_rows():
    with flambeau.profiler.profile() as p:
        with pytest.raises(RuntimeError):
            flambeau.ones(2) @ flambeau.ones(3)
        flambeau.ones(2).exp()
    events = {e.name: e for e in p.events()}
    assert events["aten::exp"].cpu_parent is None and events["aten::matmul"].cpu_time_total > 0


def test_modes_and_subclasses_still_take_part():
    seen = []

    class Mode(flambeau.overrides.TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            seen.append(func.__name__)
            return func(*args, **(kwargs or {}))

    class Mine(flambeau.Tensor):
        pass

    x = flambeau.ones(3).as_subclass(Mine)
    with flambeau.profiler.profile() as p, Mode():
        y = x * 2
        with flambeau.autocast("cpu", dtype=flambeau.bfloat16):
            z = flambeau.ones(2, 2) @ flambeau.ones(2, 2)
    assert type(y) is Mine and z.dtype is flambeau.bfloat16 and seen.count("mul") == 1
    assert [e.name for e in p.events()].count("aten::mul") == 1


def test_kernels_of_several_gradients_are_rows():
    layer = flambeau.nn.LayerNorm(4)
    p = profiled(flambeau, lambda t: layer(t.ones(3, 4)).sum().backward())
    node = next(e for e in p.events() if e.name == "NativeLayerNormBackward0")
    assert [c.name for c in node.cpu_children] == ["flambeau::layer_norm_grad"]


def test_an_operation_is_one_row():
    """Whatever it calls under its own name; questions about tensors are no operations."""
    p = profiled(flambeau, lambda t: (t.nn.functional.relu(t.ones(3)), t.ones(3).add_(1), t.ones(3).is_contiguous()))
    assert [e.name for e in p.events()] == ["aten::ones", "aten::relu", "aten::ones", "aten::add_", "aten::ones"]


def test_functions_of_the_users_and_hooks_are_seen():
    class Double(flambeau.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    x = leaf(flambeau, 3)
    with flambeau.profiler.profile() as p:
        y = Double.apply(x)
        y.register_hook(lambda g: g.neg())
        y.sum().backward()
    events = {e.name: e for e in p.events()}
    assert events["DoubleBackward"].scope == 1 and "aten::mul" in [c.name for c in events["DoubleBackward"].cpu_children]
    assert x.grad.tolist() == [-2.0] * 3


