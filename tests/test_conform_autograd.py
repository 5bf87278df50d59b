"""Details of the graph that PyTorch's autograd tests look at: hooks of nodes, saved values, gradcheck, sparse gradients."""

import copy
import gc
import warnings

import pytest
import torch
from compare import Programs, agree

import flambeau
from flambeau.autograd.gradcheck import _get_numerical_jacobian

programs = Programs()


@programs
def post_accumulate_hooks_come_before_those_of_the_node(mod):
    ran, x = [], mod.ones(2, requires_grad=True)
    x.register_post_accumulate_grad_hook(lambda p: ran.append(("after", p.grad.tolist())))
    node = x.expand_as(x).grad_fn.next_functions[0][0]
    node.register_hook(lambda gi, go: ran.append(("node", len(gi), go[0].tolist())))
    (x * 2).sum().backward()
    return ran


@programs
def a_node_hook_cannot_replace_none(mod):
    y = mod.ones(2, requires_grad=True) * 2
    y.grad_fn.register_hook(lambda gi, go: (gi[0], mod.ones(2)))
    y.sum().backward()


@programs
def a_node_hook_cannot_change_a_size(mod):
    y = mod.ones(2, requires_grad=True) * 2
    y.grad_fn.register_hook(lambda gi, go: (mod.ones(3), None))
    y.sum().backward()


@programs
def a_node_prehook_returns_tensors(mod):
    y = mod.ones(2, requires_grad=True) * 2
    y.grad_fn.register_prehook(lambda go: (1,))
    y.sum().backward()


@programs
def resizing_keeps_what_it_was_asked(mod):
    x = mod.ones(1, 1, 3, 3, requires_grad=True)
    one = mod.nn.functional.interpolate(x, 4, mode="bilinear").grad_fn
    two = mod.nn.functional.interpolate(x, scale_factor=2.0, mode="nearest").grad_fn
    return [list(one._saved_output_size), one._saved_align_corners, one._saved_scales_h, list(two._saved_output_size),
            two._saved_scales_h, two._saved_scales_w, mod.ones(2, 3, requires_grad=True).mean().grad_fn._saved_self_sym_numel]


@programs
def group_norm_of_nothing_twice(mod):
    x = mod.zeros(0, 4, 2, requires_grad=True)
    g, = mod.autograd.grad(mod.nn.functional.group_norm(x, 2).sum(), x, create_graph=True)
    return list(g.shape)


@programs
def softmax_gradients_take_negative_dims(mod):
    y = mod.softmax(mod.arange(6.0).view(2, 3), -1)
    return mod._softmax_backward_data(mod.ones(2, 3), y, -1, mod.float32)


@programs
def sparse_gradients_add_up_in_place(mod):
    layer = mod.nn.Embedding(4, 2, sparse=True)
    layer(mod.tensor([1, 2])).sum().backward()
    held = layer.weight.grad
    layer(mod.tensor([1, 3])).sum().backward()
    same = held is layer.weight.grad
    held.detach_()
    return [same, held.to_dense(), held.data.to_dense()]


@programs
def functional_derivatives_of_inputs_without_grad_keep_their_graph(mod):
    F, found = mod.autograd.functional, []
    for x in (mod.tensor([1.0, 2.0]), mod.tensor([1.0, 2.0], requires_grad=True)):
        v = mod.ones(2)
        found += [F.jacobian(lambda a: a ** 2, x, create_graph=True), F.hessian(lambda a: (a ** 3).sum(), x, create_graph=True),
                  *F.vjp(lambda a: a ** 2, x, v, create_graph=True), *F.hvp(lambda a: (a ** 3).sum(), x, v, create_graph=True)]
    return [(t.tolist(), t.requires_grad) for t in found]


STRICT = {
    "hvp, linear": lambda F, x: F.hvp(lambda a: (3 * a).sum(), x, x, strict=True),
    "vhp, linear": lambda F, x: F.vhp(lambda a: (3 * a).sum(), x, x, strict=True),
    "hessian, linear": lambda F, x: F.hessian(lambda a: (3 * a).sum(), x, strict=True),
    "hessian, cut": lambda F, x: F.hessian(lambda a: a.detach().sum(), x, strict=True),
    "jacobian, linear": lambda F, x: F.jacobian(lambda a: 3 * a, x, strict=True, create_graph=True),
    "vjp, linear": lambda F, x: F.vjp(lambda a: 3 * a, x, x, strict=True, create_graph=True),
    "jvp, linear": lambda F, x: F.jvp(lambda a: 3 * a, x, x, strict=True, create_graph=True),
    "hessian, one of two": lambda F, x: F.hessian(lambda a, b: (a * a).sum(), (x, x), strict=True),
}


@pytest.mark.parametrize("name", STRICT)
def test_strict_mode_says_what_is_independent(name):
    said = []
    for mod in (torch, flambeau):
        with pytest.raises(RuntimeError) as caught:
            STRICT[name](mod.autograd.functional, mod.tensor([1.0, 2.0]))
        said.append(str(caught.value)[:100])
    assert said[0] == said[1]


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_same_as_pytorch(program):
    agree(program)


def test_create_graph_warns_of_the_cycle():
    before = flambeau.is_warn_always_enabled()
    flambeau.set_warn_always(True)
    try:
        x = flambeau.ones(2, requires_grad=True)
        with pytest.warns(UserWarning, match="create_graph=True will create a reference cycle"):
            (x * x).sum().backward(create_graph=True)
        x.grad = None
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            (x * x).sum().backward()
    finally:
        flambeau.set_warn_always(before)
        gc.collect()


@pytest.mark.parametrize("fast", [False, True])
def test_gradcheck_of_parameters_read_from_a_module(fast):
    """The function ignores its arguments after the first: it reads the parameters from the module they belong to."""
    layer = flambeau.nn.Linear(3, 2).double()
    x = flambeau.randn(4, 3, dtype=flambeau.float64, requires_grad=True)
    before = layer.weight.detach().clone()
    assert flambeau.autograd.gradcheck(lambda x, *params: layer(x), (x, *layer.parameters()), fast_mode=fast)
    assert flambeau.autograd.gradgradcheck(lambda x, *params: layer(x), (x, *layer.parameters()), fast_mode=fast)
    assert flambeau.equal(layer.weight, before)


def test_jacobians_by_differences():
    theirs = torch.autograd.gradcheck.__globals__["_get_numerical_jacobian"]
    results = []
    for mod, function in ((torch, theirs), (flambeau, _get_numerical_jacobian)):
        x = mod.tensor([[1.0, 2.0], [3.0, 4.0]], dtype=mod.float64).t().requires_grad_()  # not laid out row by row
        w = mod.tensor([[0.5, -1.0]], dtype=mod.float64, requires_grad=True)
        both = function(lambda a, b: (a * a @ b.t(), a.sum()), (x, w), eps=1e-6)
        one = function(lambda a: a * w, x, target=w, eps=1e-6)
        results.append([[torch.tensor(m.tolist()) for m in row] for row in (*both, *one)])
    for wanted, ours in zip(*results):
        assert len(wanted) == len(ours)
        for a, b in zip(wanted, ours):
            assert a.shape == b.shape and torch.allclose(a, b, atol=1e-6)


def test_deepcopy_of_a_parameter_leaves_attributes_behind():
    for mod in (torch, flambeau):
        p = mod.nn.Parameter(mod.ones(2))
        p.note = 1
        twin = copy.deepcopy(p)
        assert not hasattr(twin, "note") and isinstance(twin, mod.nn.Parameter)
