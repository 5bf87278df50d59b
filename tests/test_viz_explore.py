"""viz.explore, as far as Python does it: what the page is given, and that the program's state stays as it was."""

from __future__ import annotations

import json
import math
import re

import pytest
from viz_models import Block, tied_step

import flambeau as torch
from flambeau import nn, viz


def find(data, **wanted):
    return [i for i, v in enumerate(data["vertices"]) if all(v.get(k) == w for k, w in wanted.items())]


@pytest.fixture(scope="module")
def explored():
    model, step = tied_step()
    return model, step, viz.explore(step, model, None).data


# ------------------------------------------------------------------------------------------------------------ the graph
def test_every_parameter_is_a_leaf_once(explored):
    model, _, data = explored
    leaves = {v["title"]: v["shapes"][0] for v in data["vertices"] if v["kind"] == "leaf"}
    assert leaves == {name: list(p.shape) for name, p in model.named_parameters()}


def test_links_go_forward(explored):
    data = explored[2]
    made = {v: i for i, (kind, v) in enumerate(data["steps"]) if kind == 0}
    ops = [(tail, head) for tail, head, *_ in data["links"] if tail in made and head in made]
    assert ops and all(made[tail] < made[head] for tail, head in ops)


def test_tensors_without_gradient_are_shown(explored):
    data = explored[2]
    titles = sorted(data["vertices"][i]["title"] for i in find(data, kind="data"))
    assert titles == ["indices", "target"]


def test_lines_are_the_users(explored):
    data = explored[2]
    assert data["linesKnown"]
    [loss] = find(data, title="nll_loss")
    file, _, function, text = data["vertices"][loss]["where"]
    assert data["files"][file].endswith("viz_models.py") and function == "step" and text.endswith("# the line of the loss")
    assert all("where" in v for v in data["vertices"] if v["kind"] == "op")


def test_modules_are_the_calls(explored):
    data = explored[2]
    groups = {g["path"]: g for g in data["groups"][1:]}
    assert groups["blocks.1.mlp"]["kind"] == "Sequential"
    parents = {path: data["groups"][g["parent"]]["path"] for path, g in groups.items() if path}
    assert parents["blocks.1.mlp.0"] == "blocks.1.mlp" and parents["blocks.1.mlp"] == "blocks.1"
    [gelu] = find(data, title="gelu", module="blocks.0.mlp.1")  # alone in its module: no frame of its own
    assert data["groups"][data["vertices"][gelu]["group"]]["path"] == "blocks.0.mlp"
    [weight] = find(data, title="tokens.weight")  # read by two modules: inside neither
    assert data["groups"][data["vertices"][weight]["group"]]["kind"] == "Tied"


def test_a_module_that_is_called_twice_has_two_frames():
    block = Block(4)

    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = block

        def forward(self, x):
            return self.inner(self.inner(x))

    model = Twice()
    data = viz.explore(lambda: model(torch.ones(2, 4)).sum(), model, None).data
    assert [g["call"] for g in data["groups"] if g["path"] == "inner"] == [1, 2]


def test_formulas_come_from_the_rows(explored):
    data = explored[2]
    assert dict(data["formulas"]["log_softmax"]["backward"])["grad of self"]
    x = torch.ones(3, requires_grad=True)
    texts = viz.explore((x * x.tanh()).sum(), None, None).data["formulas"]
    assert texts["mul"] == {"forward": "mul(self, other)", "c": "a * b", "backward": [
        ["grad of self", "grad * conj(other)"], ["grad of other", "grad * conj(self)"]]}
    assert texts["tanh"]["backward"] == [["grad of self", "tanh_backward(grad, result)"]]


def test_a_custom_function_shows_its_source():
    class Double(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, grad):
            return grad * 2  # doubled

    data = viz.explore(Double.apply(torch.ones(2, requires_grad=True)).sum(), None, None).data
    [[_, text]] = next(f for name, f in data["formulas"].items() if "Double" in name)["backward"]
    assert text.startswith("@staticmethod\ndef backward") and text.endswith("# doubled")


def test_saved_tensors_have_bytes_and_storages():
    x = torch.ones(8, 16, requires_grad=True)
    y = x.exp()
    data = viz.explore((y * y.view(16, 8).t()).sum(), None, None).data
    saved = {v["title"]: v["saved"] for v in data["vertices"] if v.get("saved")}
    assert [s[:4] for s in saved["exp"]] == [["result", [8, 16], "float32", 512]]
    assert {s[4] for s in saved["mul"]} | {saved["exp"][0][4]} == {saved["exp"][0][4]}  # one memory, three times
    assert max(data["memory"][0]) == 512


def test_without_recording_modules_are_guessed():
    model, step = tied_step()
    data = viz.explore(step(), model, None).data
    assert not data["linesKnown"] and not data["modulesRecorded"]
    assert "blocks.0.mlp.2" in [g["path"] for g in data["groups"]]


def test_recording_may_come_before():
    model, step = tied_step()
    with viz.recording(model):
        loss = step()
    data = viz.explore(loss, model, None).data
    assert data["linesKnown"] and data["modulesRecorded"]
    assert not torch.is_anomaly_enabled() and not any(m._forward_hooks or m._forward_pre_hooks for m in model.modules())


def test_recording_does_not_look_for_nan():
    x = torch.tensor([0.0], requires_grad=True)
    with viz.recording():
        (x.sqrt() * 0).sum().backward()
    assert math.isnan(x.grad.item())


# -------------------------------------------------------------------------------------------------------- the pass
def test_gradients_are_those_of_backward(explored):
    model, step, data = explored
    model.zero_grad()
    step().backward()
    for name, p in model.named_parameters():
        [i] = find(data, title=name)
        [seen] = data["vertices"][i]["gradients"]
        assert seen["norm"] == pytest.approx(p.grad.norm().item(), rel=1e-5)
        assert seen["max"] == pytest.approx(p.grad.max().item(), rel=1e-5)
        assert sum(seen["bins"]) == seen["count"] == p.numel()
    model.zero_grad()


def test_nodes_run_when_all_their_gradients_have_come(explored):
    data = explored[2]
    ran = {v: i for i, (kind, v) in enumerate(data["steps"]) if kind in (1, 2, 3)}
    ops = set(find(data, kind="op"))
    assert ops | set(find(data, kind="leaf")) | set(find(data, kind="output")) == set(ran)
    for tail, head, *_ in data["links"]:
        if tail in ran:
            assert ran[head] < ran[tail]


def test_a_shared_leaf_gets_a_sum(explored):
    data = explored[2]
    [weight] = find(data, title="tokens.weight")
    parts = [link[4] for link in data["links"] if link[0] == weight]
    assert len(parts) == 2 and all(norm > 0 for norm in parts)
    assert data["vertices"][weight]["gradients"][0]["norm"] <= sum(parts) * (1 + 1e-5)


def test_memory_is_freed_as_the_pass_goes(explored):
    model, _, data = explored
    kept, moving, gathered = data["memory"]
    turn = next(i for i, (kind, _) in enumerate(data["steps"]) if kind == 1)
    assert len(kept) == len(data["steps"]) + 1
    assert kept[0] == kept[-1] == 0 and kept[turn] == max(kept) > 0
    assert kept[:turn + 1] == sorted(kept[:turn + 1]) and kept[turn:] == sorted(kept[turn:], reverse=True)
    assert moving[turn] == moving[-1] == 0 and max(moving) > 0
    assert gathered[-1] == sum(p.numel() * 4 for p in model.parameters())


def test_the_programs_state_stays_as_it_was():
    model, step = tied_step()
    step().backward()
    before = {name: (p.grad, p.grad.clone()) for name, p in model.named_parameters()}
    x = model.blocks[0].norm.weight * 1
    x.retain_grad()
    loss = step() + x.sum()
    called = []
    loss.register_hook(lambda grad: called.append(grad))
    viz.explore(loss, model, None)
    for name, p in model.named_parameters():
        assert p.grad is before[name][0] and torch.equal(p.grad, before[name][1])
    assert x.grad is None and len(called) == 1
    node = loss.grad_fn.next_functions[0][0]
    assert node.hooks is None
    loss.backward()  # the graph is still there
    assert x.grad is not None and len(called) == 2


def test_tensors_that_are_handed_out_once_come_back():
    class Once(torch.autograd.Function):
        clear_saved_tensors_on_access = True

        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, grad):
            return 2 * grad * ctx.saved_tensors[0]

    x = torch.ones(3, requires_grad=True)
    loss = Once.apply(x).sum()
    viz.explore(loss, None, None)
    loss.backward()
    assert x.grad.tolist() == [2, 2, 2]


def test_a_node_that_no_gradient_comes_to_holds_nothing_up():
    class Nothing(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 1

        @staticmethod
        def backward(ctx, grad):
            return None

    x = torch.ones(2, requires_grad=True)
    data = viz.explore((Nothing.apply(x * 2) + x).sum(), None, None).data
    [leaf] = find(data, kind="leaf")
    [idle] = find(data, title="mul")
    assert [3, leaf] in data["steps"] and [2, idle] not in data["steps"]
    assert "gradients" not in data["vertices"][idle] and data["memory"][2][-1] == 8


def test_a_failing_hook_leaves_nothing_behind():
    x = torch.ones(3, requires_grad=True)
    y = x * 2
    handle = y.register_hook(lambda grad: 1 / 0)
    loss = y.exp().sum()
    with pytest.raises(ZeroDivisionError):
        viz.explore(loss, None, None)
    handle.remove()
    assert loss.grad_fn.hooks is None
    loss.backward()


def zero_range(x):
    return x.sum()


def subnormal(x):
    return (x * torch.tensor([1e-45, 3e-45, 2e-42])).sum()


def not_finite(x):
    return ((x - 1).sqrt() * torch.tensor([0., 1., 1.])).sum()


@pytest.mark.parametrize("program, bad", [(zero_range, 0), (subnormal, 0), (not_finite, 3)])
def test_odd_gradients(program, bad):
    x = torch.ones(3, requires_grad=True)
    page = viz.explore(program(x), None, None)
    [leaf] = find(page.data, kind="leaf")
    assert page.data["vertices"][leaf]["gradients"][0]["bad"] == bad
    json.loads(re.search(r'id="data">(.*?)</script>', page.html, re.DOTALL)[1], parse_constant=pytest.fail)


def odd_graphs():
    x = torch.ones(4, requires_grad=True)
    emb = nn.Embedding(5, 3, sparse=True)
    base = x * 2
    base[1:3] = base[:2] * 3
    yield "in place", base.view(2, 2).sum()
    yield "sparse", emb(torch.tensor([1, 1, 4])).sum()
    yield "lists", torch.cat([x, x * 2, torch.ones(2)]).split(5)[1].prod()
    yield "complex", (torch.complex(x, x) * 1j).abs().sum()
    yield "meta", nn.Linear(3, 2, device="meta")(torch.ones(1, 3, device="meta")).sum()
    yield "checkpoint", torch.utils.checkpoint.checkpoint(torch.sin, x, use_reentrant=False).sum()
    yield "lstm", nn.LSTM(2, 3)(torch.ones(4, 1, 2))[0].sum()


@pytest.mark.parametrize("name, loss", list(odd_graphs()), ids=lambda v: v if isinstance(v, str) else "")
def test_odd_graphs(name, loss):
    data = viz.explore(loss, None, None).data
    assert [kind for kind, _ in data["steps"]].count(3) == len(find(data, kind="leaf"))
    two = viz.explore((loss, loss * 2), None, None, gradient=(torch.ones_like(loss),) * 2).data
    assert [two["vertices"][i]["title"] for i in find(two, kind="output")] == ["output 0", "output 1"]


# ------------------------------------------------------------------------------------------------------------ the file
def test_the_file_is_whole(tmp_path, explored):
    x = torch.ones(2, requires_grad=True)
    made = viz.explore((x * x).sum(), path=tmp_path / "sub" / "g.html", title="</script> {{data}} & <b>")
    text = (tmp_path / "sub" / "g.html").read_text("utf-8")
    assert made.path == str(tmp_path / "sub" / "g.html") and text == made.html
    assert text.count("</script>") == 2 and "&lt;/script&gt; {{data}} &amp; &lt;b&gt; · flambeau</title>" in text
    assert not re.search(r"(?:src|href)=\"(?!data:)|@import|url\(|https?://(?!www\.w3\.org)", text)
    assert made._repr_html_().startswith("<iframe srcdoc=")


@pytest.mark.parametrize("loss, error, text", [
    (torch.ones(1), RuntimeError, "does not require grad and does not have a grad_fn"),
    (3, TypeError, "expected a tensor, several, or a function"), ([], ValueError, "at least one"),
    (torch.ones(2, requires_grad=True) * 1, RuntimeError, "only for scalar outputs")])
def test_wrong_arguments(loss, error, text):
    with pytest.raises(error, match=text):
        viz.explore(loss, None, None)


def test_recording_wants_a_module():
    with pytest.raises(TypeError, match="expected a module or None"):
        viz.recording(3)
