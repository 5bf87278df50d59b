"""profiler.profile over steps, in files, of compiled programs, and what it refuses."""

from __future__ import annotations

import gzip
import inspect
import json
import warnings

import pytest
import torch
from profiles import a_line_of_mine, leaf, prepared, profiled, training

import flambeau
from flambeau.native import toolchain

BUILDS = pytest.mark.skipif(toolchain.compiler() is None, reason="needs a C compiler")


# -------------------------------------------------------------------------------------------------------- schedules
def actions(t, **options):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        made = t.profiler.schedule(**options)
    return [made(step).name for step in range(20)]


@pytest.mark.parametrize("options", [
    dict(wait=1, warmup=1, active=2), dict(wait=0, warmup=0, active=1), dict(wait=2, warmup=1, active=3, repeat=1),
    dict(wait=1, warmup=1, active=1, repeat=2, skip_first=3),
    dict(wait=2, warmup=1, active=2, skip_first=1, skip_first_wait=1)],
    ids=str)
def test_schedules_are_pytorchs(options):
    assert actions(flambeau, **options) == actions(torch, **options)


@pytest.mark.parametrize("options", [dict(wait=1, warmup=1, active=2, repeat=2), dict(wait=0, warmup=1, active=1),
                                     dict(wait=2, warmup=0, active=3, skip_first=1)], ids=str)
def test_steps_are_recorded_as_in_pytorch(options):
    def seen(t):
        found = []
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with t.profiler.profile(schedule=t.profiler.schedule(**options), on_trace_ready=lambda p: found.append(
                    (p.step_num, [e.name for e in p.events() if e.name.startswith(("ProfilerStep", "aten::mul"))]))) as p:
                for _ in range(11):
                    t.ones(2) * 2
                    p.step()
        return found

    assert seen(flambeau) == seen(torch)


def test_a_wrong_schedule_is_told():
    with pytest.raises(AssertionError, match="Invalid profiler schedule"):
        flambeau.profiler.schedule(wait=-1, warmup=0, active=1)
    with pytest.warns(UserWarning, match="warmup"):
        flambeau.profiler.schedule(wait=0, warmup=0, active=1)
    name = flambeau.profiler.ProfilerAction
    with pytest.warns(UserWarning, match="Incorrect schedule: RECORD followed by NONE"), flambeau.profiler.profile(
            schedule=lambda step: name.RECORD if step == 0 else name.NONE) as p:
        p.step()


def test_events_accumulate_when_asked():
    def count(acc_events):
        schedule = flambeau.profiler.schedule(wait=0, warmup=1, active=1)
        with flambeau.profiler.profile(schedule=schedule, acc_events=acc_events) as p:
            for _ in range(6):
                flambeau.ones(2) * 2
                p.step()
        return sum(e.name == "aten::mul" for e in p.events())

    assert (count(False), count(True)) == (1, 3)


# ------------------------------------------------------------------------------------------------------------- files
@pytest.mark.parametrize("end", ["", ".gz"])
def test_chrome_traces(tmp_path, end):
    with flambeau.profiler.profile(record_shapes=True, with_stack=True, profile_memory=True) as p:
        training(flambeau, *prepared(flambeau))
        p.add_metadata("note", "a text")
        p.add_metadata_json("numbers", "[1, 2]")
    path = str(tmp_path / f"trace.json{end}")
    p.export_chrome_trace(path)
    with gzip.open(path, "rt") if end else open(path) as file:
        trace = json.load(file)
    assert (trace["schemaVersion"], trace["note"], trace["numbers"], trace["with_stack"], trace["with_flops"]) == (
        1, "a text", [1, 2], 1, 0)
    assert trace["trace_id"] == p.get_trace_id() and trace["baseTimeNanoseconds"] > 1e18
    blocks = [e for e in trace["traceEvents"] if e["ph"] == "X"]
    assert len(blocks) == len([e for e in p.events() if e.name != "[memory]"])
    for e in blocks:
        assert {"name", "ts", "dur", "pid", "tid", "cat", "args"} <= e.keys() and e["dur"] >= 0
    assert {e["cat"] for e in blocks} == {"cpu_op", "user_annotation"}
    starts = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "s"}
    ends = {e["id"]: e for e in trace["traceEvents"] if e["ph"] == "f"}
    assert starts.keys() == ends.keys() and len(starts) == 6 and all(starts[i]["ts"] < ends[i]["ts"] for i in starts)
    assert {e["name"] for e in trace["traceEvents"] if e["ph"] == "M"} == {"process_name", "thread_name"}


def test_stacks_for_flame_graphs(tmp_path):
    p = profiled(flambeau, lambda t: a_line_of_mine(t, t.ones(100_000)), with_stack=True)
    p.export_stacks(str(tmp_path / "stacks"), "self_cpu_time_total")
    lines = (tmp_path / "stacks").read_text().splitlines()
    assert lines and all(len(line.split(" ")) == 2 and int(line.split(" ")[1]) > 0 for line in lines)
    assert any(line.split(" ")[0].split(";")[-1].endswith("a_line_of_mine") for line in lines)
    with pytest.raises(ValueError, match="metric should be one of"):
        p.export_stacks(str(tmp_path / "stacks"), "self_cuda_time_total")
    with pytest.raises(RuntimeError, match="with_stack=True"):
        profiled(flambeau, lambda t: None).export_stacks(str(tmp_path / "stacks"))


@pytest.mark.parametrize("use_gzip", [False, True])
def test_traces_for_tensorboard(tmp_path, use_gzip):
    handler = flambeau.profiler.tensorboard_trace_handler(str(tmp_path / "log"), "worker", use_gzip)
    with flambeau.profiler.profile(on_trace_ready=handler):
        flambeau.ones(2) * 2
    [file] = (tmp_path / "log").iterdir()
    assert file.name.startswith("worker.") and file.name.endswith(".pt.trace.json" + ".gz" * use_gzip)


# ------------------------------------------------------------------------------------------------ compiled programs
def compiled_programs(library):
    x, model, optimizer = prepared(library)
    target = library.ones(5, 3)

    @library.compile
    def train(x):
        optimizer.zero_grad()
        loss = library.nn.functional.mse_loss(model(x).tanh(), target)
        loss.backward()
        optimizer.step()
        return loss

    @library.compile
    def joint(x):
        return (x * 2).exp().sum()

    @library.compile
    def followed(x):
        y = (x * 2).tanh()
        return y.exp() if y.sum().item() < 1e9 else y

    followed._compiled.paths.pace = None  # also where that does not pay
    w = leaf(library, 4, 4)

    def run():
        loss = train(x.detach())
        joint(w).backward()
        return [loss, followed(w.detach()), w.grad, *model.parameters()]

    return run, train


@BUILDS
def test_compiled_calls_show_their_parts_and_give_the_same():
    lines, first = inspect.getsourcelines(compiled_programs)
    at = lambda text: f"test_profiler_steps.py:{first + next(i for i, line in enumerate(lines) if text in line)}"
    (run, _), (plain, train) = compiled_programs(flambeau), compiled_programs(flambeau)
    for _ in range(4):
        run(), plain()
    with flambeau.profiler.profile(with_stack=True) as p:
        measured = run(), run()
    assert all(flambeau.equal(a, b) for a, b in zip(measured[1], [plain(), plain()][1], strict=True))
    assert all(flambeau.equal(a, b) for a, b in zip(run(), plain(), strict=True))  # and afterwards
    regions = {e.name: [c.name for c in e.cpu_children] for e in p.events() if e.name.startswith("Torch-Compiled Region")}
    assert regions["Torch-Compiled Region: joint"] == [f"compiled::loop mul + exp + sum ({at('(x * 2).exp')})"]
    assert regions["Torch-Compiled Region: train"][0].startswith("compiled::") and any(
        name.endswith(f"fused_sgd ({at('optimizer.step')})") for name in regions["Torch-Compiled Region: train"])
    assert regions["Torch-Compiled Region: followed"] == [
        f"compiled::loop mul + tanh + sum ({at('(x * 2).tanh')})", f"compiled::loop exp ({at('y.exp')})"]
    backward = [e for e in p.events() if e.name == "CompiledFunctionBackward"]
    assert len(backward) == 2 and all(any(c.name.startswith("compiled::loop") for c in e.cpu_children) for e in backward)
    part = next(e for e in p.events() if e.name.startswith("compiled::loop mul + exp"))
    assert part.stack[0].endswith(f"{at('(x * 2).exp').replace(':', '(')}): <compiled>")
    assert 0 <= part.cpu_time_total <= part.cpu_parent.cpu_time_total
    programs = [plan.program for plans in train._compiled.plans.values() for plan in plans]
    assert programs and all(program.entry is program.function for program in programs)


@BUILDS
def test_calls_that_run_eagerly_show_their_operations():
    seen = []

    @flambeau.compile
    def noisy(x):
        seen.append(1)  # an effect: such calls are followed
        return x.exp()

    x = flambeau.ones(3)
    for _ in range(3):
        noisy(x)
    pace = noisy._compiled.paths.pace
    pace.way, pace.left = True, 5  # as if following had been slower
    p = profiled(flambeau, lambda t: noisy(x))
    region = next(e for e in p.events() if e.name == "Torch-Compiled Region: noisy")
    assert [c.name for c in region.cpu_children] == ["aten::exp"] and len(seen) == 4 and pace.left == 4


# ---------------------------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize("make", [
    lambda: flambeau.profiler.profile(experimental_config=object()),
    lambda: flambeau.profiler.profile(execution_trace_observer=object()),
    lambda: flambeau.profiler.profile(post_processing_timeout_s=1.0),
    lambda: flambeau.profiler.profile().export_memory_timeline("x"),
    lambda: flambeau.profiler.ExecutionTraceObserver(),
    lambda: flambeau.profiler.itt.range_push("x"),
    lambda: flambeau.profiler.tensorboard_trace_handler("x", use_python_export=True),
    lambda: flambeau.autograd.profiler.profile(use_kineto=True),
    lambda: flambeau.autograd.profiler.profile(use_cpu=False),
    lambda: flambeau.autograd.profiler.emit_nvtx(),
    lambda: flambeau.autograd.profiler.emit_itt(),
    lambda: flambeau.autograd.profiler.load_nvprof("x")])
def test_what_is_not_there_says_so(make):
    with pytest.raises(NotImplementedError):
        make()


def test_options_that_do_not_exist_raise():
    with pytest.raises(TypeError):
        flambeau.profiler.profile(with_stacks=True)
    with pytest.raises(TypeError):
        flambeau.autograd.profiler.profile(with_stacks=True)
    with pytest.raises(AssertionError, match="Profiler must be initialized"):
        flambeau.profiler.profile().events()


def test_devices_that_are_not_there_are_told():
    activity = flambeau.profiler.ProfilerActivity
    assert flambeau.profiler.supported_activities() == {activity.CPU}
    with pytest.warns(UserWarning, match="CUDA is not available"):
        p = flambeau.profiler.profile(activities=[activity.CPU, activity.CUDA])
    assert p.activities == {activity.CPU}
    with pytest.raises(AssertionError, match="No valid profiler activities"), pytest.warns(UserWarning):
        flambeau.profiler.profile(activities=[activity.CUDA])


# ------------------------------------------------------------------------------------------------- autograd.profiler
def test_autograd_profiler_is_the_same():
    from flambeau.autograd.profiler import profile
    with profile(record_shapes=True, profile_memory=True) as p:
        (leaf(flambeau, 3) * 2).sum().backward()
    assert {"aten::mul", "MulBackward0"} <= {e.name for e in p.function_events}
    assert p.self_cpu_time_total == pytest.approx(sum(e.self_cpu_time_total for e in p.function_events))
    assert "Input Shapes" in p.table() and "CPU Mem" in str(p) and p.total_average().count == len(p.function_events)
    with profile(enabled=False) as off:
        flambeau.ones(2)
    with pytest.raises(RuntimeError, match="didn't finish"):
        off.key_averages()
    assert flambeau.autograd.profiler.Interval(1.0, 3.0).elapsed_us() == 2.0
