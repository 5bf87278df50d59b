"""torch.fx: traces, their code and listings as PyTorch makes them, and changes of graphs."""

import copy
import importlib
import pickle

import pytest
import torch
from compare import MODULES

import flambeau


def model(m):
    class Net(m.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = m.nn.Linear(4, 5)
            self.rest = m.nn.Sequential(m.nn.Linear(5, 5), m.nn.ReLU())
            self.scale = m.nn.Parameter(m.ones(5))
            self.register_buffer("shift", m.arange(5.0))

        def forward(self, x, flag=True, *, k=3):
            y = m.nn.functional.relu(self.rest(self.first(x)) * self.scale + self.shift)
            a, b = m.cat([y, y], dim=-1).chunk(2, dim=1)
            z = -m.add(a, b, alpha=2).clamp(min=0.0) ** 2 + 1 / (a + 1)
            return {"z": z[:, 1:3], "rows": z.shape[0], "sums": (z.sum(), [z.max()])}

    return Net()


def traced(m):
    return importlib.import_module(f"{m.__name__}.fx").symbolic_trace(model(m))


def test_code_and_listing():
    ours, theirs = traced(flambeau), traced(torch)
    assert ours.code == theirs.code
    assert str(ours.graph) == str(theirs.graph)
    assert [(n.op, n.name, str(n.args), str(n.kwargs), str(list(n.users))) for n in ours.graph.nodes] == [
        (n.op, n.name, str(n.args), str(n.kwargs), str(list(n.users))) for n in theirs.graph.nodes]


def test_runs_like_the_module():
    net = model(flambeau)
    graph = flambeau.fx.symbolic_trace(net)
    x = flambeau.randn(3, 4)
    for made in (graph, copy.deepcopy(graph), pickle.loads(pickle.dumps(graph))):
        assert flambeau.equal(made(x)["z"], net(x)["z"]) and made(x)["rows"] == 3
    assert flambeau.equal(flambeau.fx.Interpreter(graph).run(x)["z"], net(x)["z"])
    assert dict(graph.named_parameters()).keys() == dict(net.named_parameters()).keys()


FUNCTIONS = {
    "operators": lambda m: lambda x, y: (x @ y - 2 * x) / (3 - y) // 2 % 5 & (x < y),
    "methods": lambda m: lambda x: x.view(-1).t().relu_().sum(dim=0, keepdim=True),
    "attributes": lambda m: lambda x: x.shape[0] + x.size(1),
    "defaults": lambda m: lambda x, scale=2.0, mode=None: m.flatten(x * scale, 1),
    "slices": lambda m: lambda x: x[..., None, 1:, ::2],
    "names that are taken": lambda m: lambda input, sum: m.sum(input) + sum,  # noqa: A006
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    codes = [importlib.import_module(f"{n}.fx").symbolic_trace(FUNCTIONS[name](m)).code for n, m in MODULES.items()]
    assert codes[0] == codes[1]


def test_functions_of_namespaces():
    made = flambeau.fx.symbolic_trace(lambda x: flambeau.linalg.inv(x) + flambeau.fft.fft(x).real)
    assert "torch.linalg.inv(x)" in made.code and "torch.fft.fft(x)" in made.code
    assert flambeau.equal(made(flambeau.eye(2)), flambeau.eye(2) + flambeau.fft.fft(flambeau.eye(2)).real)


def test_changing_a_graph():
    def program(m):
        fx = importlib.import_module(f"{m.__name__}.fx")
        made = fx.symbolic_trace(lambda x, y: m.relu(x + y) * m.relu(x))
        for node in made.graph.nodes:
            if node.target is m.relu:
                with made.graph.inserting_after(node):
                    new = made.graph.call_function(m.tanh, node.args)
                node.replace_all_uses_with(new)
                made.graph.erase_node(node)
        made.graph.lint()
        made.recompile()
        return made.code

    assert program(flambeau) == program(torch)


def test_patterns_and_transformers():
    made = flambeau.fx.symbolic_trace(lambda x, y: flambeau.relu(x + y) * flambeau.relu(x))
    assert len(flambeau.fx.replace_pattern(made, lambda a, b: flambeau.relu(a + b), lambda a, b: a - b)) == 1
    x, y = flambeau.randn(4), flambeau.randn(4)
    assert flambeau.equal(made(x, y), (x - y) * x.relu())

    class Swap(flambeau.fx.Transformer):
        def call_function(self, target, args, kwargs):
            return super().call_function(flambeau.cos if target is flambeau.relu else target, args, kwargs)

    assert flambeau.equal(Swap(made).transform()(x, y), (x - y) * x.cos())


def test_control_flow_is_refused_and_nothing_stays_patched():
    call, active = flambeau.nn.Module.__call__, flambeau.overrides.active
    with pytest.raises(ValueError, match="control flow"):
        flambeau.fx.symbolic_trace(lambda x: x if x.sum() > 0 else -x)
    assert flambeau.nn.Module.__call__ is call and flambeau.overrides.active == active


def test_shapes():
    from flambeau.fx.passes.shape_prop import ShapeProp
    graph = traced(flambeau)
    ShapeProp(graph).propagate(flambeau.zeros(3, 4))
    found = {n.name: tuple(n.meta["tensor_meta"].shape) for n in graph.graph.nodes if n.op == "call_module"}
    assert found == {"first": (3, 5), "rest_0": (3, 5), "rest_1": (3, 5)}


def test_dead_code_and_leaves():
    class Whole(flambeau.fx.Tracer):
        def is_leaf_module(self, m, module_qualified_name):
            return True

    graph = Whole().trace(model(flambeau))
    assert [n.target for n in graph.find_nodes(op="call_module")] == ["first", "rest"]
    made = flambeau.fx.symbolic_trace(lambda x: (x.sin(), x.cos())[1])
    assert made.graph.eliminate_dead_code() and "sin" not in str(made.graph)
