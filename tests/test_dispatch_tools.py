"""Tools on dispatch modes: fake tensors, make_fx, selective checkpoints, flop counts, custom operations."""

from __future__ import annotations

import functools
import importlib

import pytest
import torch

import flambeau

MODULES = (flambeau, torch)


def part(m, name):
    return importlib.import_module(f"{m.__name__}.{name}")


def outcome(function, *args):
    """What a call gives: its value, or the kind and the first words of its error."""
    try:
        return function(*args)
    except Exception as error:
        return type(error).__name__, str(error)[:60]


def same(function):
    ours, theirs = [outcome(function, m) for m in MODULES]
    assert ours == theirs


# ------------------------------------------------------------------------------------------------------------ make_fx
def _grad(m, x, w):
    x = x.detach().requires_grad_()
    return m.autograd.grad(m.nn.functional.linear(x, w).relu().sum(), x)[0]


TRACED = {
    "pointwise": (lambda m, x, y: (x + y).sin() * 2, [(2,), (2,)], {}),
    "fake": (lambda m, x: x.view(-1).exp().sum(), [(2, 3)], {"tracing_mode": "fake"}),
    "gradient": (_grad, [(2, 3), (4, 3)], {}),
    "several results": (lambda m, x: x.max(1), [(2, 3)], {}),
    "in place": (lambda m, x: x.clone().add_(1).mul_(x), [(2,)], {}),
    "constant": (lambda m, x: x + m.tensor([1.0, 2.0]), [(2,)], {}),
    "factory": (lambda m, x: x + m.ones(2), [(2,)], {}),
    "layers": (lambda m, x, w: m.nn.functional.max_pool2d(m.nn.functional.conv2d(x, w), 2), [(1, 1, 6, 6), (1, 1, 3, 3)], {}),
}


@pytest.mark.parametrize("name", TRACED)
def test_make_fx_writes_the_same_code(name):
    function, shapes, options = TRACED[name]
    count = len(shapes)

    def traced(m):
        def one(x):
            return function(m, x)

        def two(x, y):
            return function(m, x, y)

        make_fx = part(m, "fx.experimental.proxy_tensor").make_fx
        made = make_fx(one if count == 1 else two, **options)(*[m.ones(s) for s in shapes])
        return [line for line in made.code.splitlines() if line.strip()]

    same(traced)


def test_a_traced_graph_runs_on_other_values():
    def traced(m):
        made = part(m, "fx.experimental.proxy_tensor").make_fx(lambda x, y: (x @ y).softmax(-1))(m.ones(2, 3), m.ones(3, 2))
        x = m.arange(6.0).view(2, 3)
        return [round(v, 5) for v in made(x, x.t().contiguous()).reshape(-1).tolist()], [
            str(n.target) for n in made.graph.nodes]

    same(traced)


def test_decompositions_errors_and_modules():
    def decomposed(m):
        table = {m.ops.aten.sigmoid.default: lambda x: 1 / (1 + (-x).exp())}
        made = part(m, "fx.experimental.proxy_tensor").make_fx(lambda x: m.sigmoid(x), decomposition_table=table)(m.ones(2))
        return made.code

    same(decomposed)
    same(lambda m: part(m, "fx.experimental.proxy_tensor").make_fx(lambda x: x.item())(m.ones(1)))
    same(lambda m: part(m, "fx.experimental.proxy_tensor").make_fx(m.nn.Linear(2, 2))(m.ones(1, 2)).code)
    with pytest.raises(NotImplementedError, match="symbolic"):
        part(flambeau, "fx.experimental.proxy_tensor").make_fx(lambda x: x, tracing_mode="symbolic")


# ------------------------------------------------------------------------------------------------------- fake tensors
def fakes(m):
    return part(m, "_subclasses.fake_tensor")


def test_what_fake_tensors_print():
    def shown(m):
        with fakes(m).FakeTensorMode():
            x = m.empty(2, 3)
            y = x @ m.ones(3, 4)
            made = [x, y, m.zeros(2, dtype=m.int64), m.zeros(2, dtype=m.float64), m.ones(2, device="cuda"), x > 0, x[0],
                    x.sum()]
            return [repr(t) for t in made], str(y.device), y.stride(), fakes(m).is_fake(y)

    same(shown)


def test_fakes_of_tensors_and_their_gradients():
    def gradients(m):
        mode = fakes(m).FakeTensorMode()
        x = mode.from_tensor(m.ones(4, 4).t().requires_grad_())
        y = (x * 2).sum()
        y.backward()
        return repr(x), x.stride(), repr(y), repr(x.grad), mode.from_tensor(m.ones(1)).stride()

    same(gradients)


def test_a_model_without_memory():
    def trained(m):
        nn, f = m.nn, m.nn.functional
        with fakes(m).FakeTensorMode():
            model = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                                  nn.Linear(8, 5))
            optimizer = m.optim.Adam(model.parameters(), foreach=False)
            out = model(m.randn(2, 3, 16, 16))
            loss = f.cross_entropy(out, m.zeros(2, dtype=m.long))
            loss.backward()
            optimizer.step()
            return list(out.shape), repr(loss), [list(p.grad.shape) for p in model.parameters()]

    same(trained)


def test_fake_tensors_have_no_values():
    def asked(m):
        with fakes(m).FakeTensorMode():
            x = m.ones(3)
            return [outcome(f) for f in (lambda: x.sum().item(), lambda: x.nonzero(), lambda: bool(x[0]),
                                         lambda: m.tensor(3).item(), lambda: m.masked_select(x, x > 0))]

    same(asked)
    same(lambda m: fakes(m).FakeTensorMode().from_tensor(m.ones(2)) + m.ones(2))


# -------------------------------------------------------------------------------------------- selective checkpointing
def _policy(m, kept):
    policies = part(m, "utils.checkpoint").CheckpointPolicy
    return lambda ctx, op, *args, **kwargs: policies.MUST_SAVE if str(op) in kept else policies.PREFER_RECOMPUTE


@pytest.mark.parametrize("kind", ["none", "list", "policy"])
def test_selective_checkpoints(kind):
    def trained(m):
        checkpoint, counts = part(m, "utils.checkpoint"), {}

        class Counting(part(m, "utils._python_dispatch").TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                counts[str(func)] = counts.get(str(func), 0) + 1
                return func(*args, **(kwargs or {}))

        chosen = {"list": [m.ops.aten.mm.default], "policy": _policy(m, ("aten.mm.default", "aten.sigmoid.default"))}.get(kind)
        options = {} if chosen is None else {
            "context_fn": functools.partial(checkpoint.create_selective_checkpoint_contexts, chosen)}
        x, w = [m.full((3, 3), v, requires_grad=True) for v in (0.2, 0.3)]
        with Counting():
            checkpoint.checkpoint(lambda x, w: (m.relu(x @ w) @ w).sigmoid().exp(), x, w, use_reentrant=False,
                                  **options).sum().backward()
        names = ("aten.mm.default", "aten.relu.default", "aten.sigmoid.default", "aten.exp.default")
        return [[round(v, 5) for v in t.grad.reshape(-1).tolist()] for t in (x, w)], [counts[n] for n in names]

    same(trained)


def test_selective_checkpoints_refuse():
    contexts = [functools.partial(part(m, "utils.checkpoint").create_selective_checkpoint_contexts) for m in MODULES]
    for make, m in zip(contexts, MODULES):
        with pytest.raises(ValueError, match="Expected op in `op_list` to be an OpOverload"):
            make([m.ops.aten.mm])
        with pytest.raises(TypeError, match="policy_fn_or_list"):
            make(3)

    def twice(m):
        checkpoint = part(m, "utils.checkpoint")
        x = m.ones(2, 2, requires_grad=True)
        y = checkpoint.checkpoint(lambda x: (x @ x).sigmoid(), x, use_reentrant=False, context_fn=functools.partial(
            checkpoint.create_selective_checkpoint_contexts, [m.ops.aten.mm.default]))
        y.sum().backward(retain_graph=True)
        y.sum().backward()

    same(twice)


def test_debug_shows_the_operations_of_both_runs():
    checkpoint, runs = part(flambeau, "utils.checkpoint"), []

    def changing(x):
        runs.append(1)
        return x.sin().exp() if len(runs) == 1 else x.sin().exp().sin().cos()

    y = checkpoint.checkpoint(changing, flambeau.ones(3, requires_grad=True), use_reentrant=False, debug=True, early_stop=False)
    with pytest.raises(checkpoint.CheckpointError) as raised:
        y.sum().backward()
    text = str(raised.value)
    first, second = text.split("Operations executed during recomputation")
    assert "passed `debug=True` to checkpoint" in text and "test_dispatch_tools.py" in text
    assert first.rpartition("the original forward:")[2].count("aten.sin.default") == 1
    assert second.count("aten.sin.default") == 2


# -------------------------------------------------------------------------------------------------------------- flops
def test_flops_by_module_forward_and_backward():
    def counted(m):
        class Twice(m.nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = m.nn.Linear(4, 4)

            def forward(self, x):
                return self.inner(self.inner(x))

        model = m.nn.Sequential(m.nn.Conv1d(2, 4, 3, padding=1), Twice(), m.nn.ReLU(), m.nn.Linear(4, 3))
        mode = part(m, "utils.flop_counter").FlopCounterMode(display=False)
        with mode:
            model(m.randn(5, 2, 4)).sum().backward()
        return {k: {str(op): n for op, n in v.items()} for k, v in mode.get_flop_counts().items()}, mode.get_total_flops()

    same(counted)


def test_flops_of_a_custom_operation():
    def counted(m):
        library, counter = part(m, "library"), part(m, "utils.flop_counter")
        op = library.custom_op(f"dispatch_tools_{m.__name__}::product", lambda x, y: x @ y, mutates_args=(),
                               schema="(Tensor x, Tensor y) -> Tensor")

        @counter.register_flop_formula(getattr(m.ops, f"dispatch_tools_{m.__name__}").product)
        def formula(x, y, out_shape=None):
            return x[0] * y[1] * 7

        with counter.FlopCounterMode(display=False) as mode:
            op(m.ones(2, 3), m.ones(3, 4))
        return mode.get_total_flops()

    same(counted)


# -------------------------------------------------------------------------------------------------- custom operations
@pytest.fixture(scope="module")
def custom():
    made = {}
    for m in MODULES:
        library = part(m, "library")
        op = library.custom_op("dispatch_tools::scaled", lambda x, n=2: x * n, mutates_args=(),
                               schema="(Tensor x, int n=2) -> Tensor")
        op.register_fake(lambda x, n=2, m=m: m.empty_like(x))
        op.register_autograd(lambda ctx, grad: (grad * ctx.n, None),
                             setup_context=lambda ctx, inputs, output: setattr(ctx, "n", inputs[1]))
        made[m] = op
    return made


def test_custom_operations_are_seen(custom):
    def seen(m):
        op, log = custom[m], []

        class Mode(part(m, "utils._python_dispatch").TorchDispatchMode):
            def __torch_dispatch__(self, func, types, args=(), kwargs=None):
                log.append((str(func), len(args)))
                return func(*args, **(kwargs or {}))

        x = m.ones(2, requires_grad=True)
        with Mode():
            op(x, 3).sum().backward()
        with fakes(m).FakeTensorMode():
            fake = repr(op(m.ones(2, 3)))
        code = part(m, "fx.experimental.proxy_tensor").make_fx(lambda x: op(x, 3) + 1)(m.ones(2)).code

        @part(m, "library").register_torch_dispatch("dispatch_tools::scaled", Mode)
        def handler(mode, func, types, args, kwargs):
            log.append(("registered", str(func)))
            return func(*args, **(kwargs or {}))

        with Mode():
            op(m.ones(1))
        return log, x.grad.tolist(), fake, code

    same(seen)


def test_names_and_schemas(custom):
    def names(m):
        op, add = m.ops.dispatch_tools.scaled, m.ops.aten.add
        return (str(op), str(op.default), op.default.name(), str(op.default._schema), op.default.namespace, op.overloads(),
                repr(op.default), op.default.__name__, str(add.Tensor), add.Tensor.name(), str(add.Tensor._schema), repr(add),
                repr(add.Tensor), add.Tensor.__name__, add.__name__, m.ops.aten.mm.default.overloadpacket is m.ops.aten.mm,
                m.ops.aten.add_.Tensor._schema.is_mutable, m.ops.aten.view.default.is_view,
                add.Tensor(m.ones(1), m.ones(1), alpha=2).tolist(), m.ops.aten.sum.dim_IntList(m.ones(2, 2), [0]).tolist(),
                [a.name for a in m.ops.aten.addmm.default._schema.arguments], outcome(lambda: add.Nothing))

    same(names)


def test_opcheck(custom):
    library = part(flambeau, "library")
    checked = library.opcheck(custom[flambeau], (flambeau.ones(2, requires_grad=True),))
    assert checked == dict.fromkeys(("test_schema", "test_autograd_registration", "test_faketensor",
                                     "test_aot_dispatch_dynamic"), "SUCCESS")  # PyTorch's keys
    bad = library.custom_op("dispatch_tools::bad", lambda x: x.add_(1).clone(), mutates_args=(), schema="(Tensor x) -> Tensor")
    with pytest.raises(library.OpCheckError, match="not defined as mutable"):
        library.opcheck(bad, (flambeau.ones(2),), test_utils="test_schema")
    bad.register_fake(lambda x: flambeau.empty(7))
    with pytest.raises(library.OpCheckError, match="shape"):
        library.opcheck(bad, (flambeau.ones(2),), test_utils="test_faketensor")
    with pytest.raises(ValueError, match="test_utils"):
        library.opcheck(bad, (flambeau.ones(2),), test_utils="test_nothing")
