"""backward, grad, leaves and the open graph: PyTorch's documented behaviour, compared with torch itself."""

import pytest
from compare import Programs, agree, leaf

import flambeau

programs = Programs()


# ------------------------------------------------------------------------------------------------------------- leaves
@programs
def requires_grad_is_contagious(mod):
    x, y = leaf(mod, 1.0, 2.0, 3.0), mod.ones(3)
    return (x + y).requires_grad, (y + y).requires_grad, x.is_leaf, (x + y).is_leaf, (y + y).is_leaf


@programs
def integers_cannot_require_grad(mod):
    mod.tensor([1, 2], requires_grad=True)


@programs
def integers_cannot_require_grad_later(mod):
    mod.tensor([1, 2]).requires_grad_()


@programs
def turning_off_on_a_non_leaf(mod):
    (leaf(mod, 1.0, 2.0, 3.0) * 2).requires_grad = False


@programs
def turning_off_on_a_leaf(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    x.requires_grad = False
    return x, (x * 2).requires_grad


@programs
def turning_on_a_non_leaf_is_fine(mod):
    y = leaf(mod, 1.0, 2.0, 3.0) * 2
    return y.requires_grad_(True).requires_grad


@programs
def detach(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    d = x.detach()
    d[0] = 9
    return d.requires_grad, x, d.grad_fn, d._is_view()


@programs
def detach_in_place(mod):
    y = leaf(mod, 1.0, 2.0, 3.0) * 2
    y.detach_()
    return y, y.is_leaf


@programs
def data(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = x * x
    x.data.mul_(10)
    y.sum().backward()
    return x.grad, x._version


@programs
def clone_is_differentiable(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    x.clone().mul(3).sum().backward()
    return x.grad


@programs
def grad_assignment(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    x.grad = mod.ones(3)
    (x * 2).sum().backward()
    return x.grad


for number, value in enumerate([lambda m, x: 3.0, lambda m, x: m.ones(2), lambda m, x: m.ones(3).double(), lambda m,
                                x: x]):
    def bad_grad(mod, value=value):
        x = leaf(mod, 1.0, 2.0, 3.0)
        x.grad = value(mod, x)

    bad_grad.__name__ = f"bad_grad_{number}"
    programs(bad_grad)


# ---------------------------------------------------------------------------------------------------------- the graph
@programs
def node_names(mod):
    x, m = leaf(mod, 1.0, 2.0, 3.0), mod.ones(2, 2, requires_grad=True)
    made = [x + x, x - x, x * x, x / x, -x, x ** 2, x.exp(), x.sum(), x.sum(0), x.mean(), m @ m, m.mm(m), x[0], x[1:],
            x.view(3, 1), x.reshape(3, 1), m.t(), m.transpose(0, 1), x.clone(), x.unsqueeze(0), x.expand(2, 3),
            mod.cat([x, x]), mod.stack([x, x]), x.max(), x.relu(), x.sigmoid(), x.tanh(), x.sqrt(), x.abs(), x.log(),
            x.sin(), x.cos(), x.clamp(0, 1), mod.where(x > 1, x, x), x.double(), x.pow(2.0), x.prod(), x.permute(0)]
    return [t.grad_fn.name() for t in made]


@programs
def next_functions(mod):
    x, y = leaf(mod, 1.0, 2.0, 3.0), mod.ones(3)
    z = (x * y) + x
    product, accumulate = z.grad_fn.next_functions
    return (product[0].name(), product[1], accumulate[0].variable is x, product[0].next_functions[1],
            accumulate[0].next_functions)


@programs
def output_numbers(mod):
    a, b = mod.arange(4.0).requires_grad_().chunk(2)
    return a.output_nr, b.output_nr, (b * 2).grad_fn.next_functions


@programs
def metadata(mod):
    y = leaf(mod, 1.0, 2.0, 3.0) * 2
    y.grad_fn.metadata["x"] = 1
    return y.grad_fn.metadata


@programs
def nodes_are_callable(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    return x.exp().grad_fn(mod.ones(3))


@programs
def nodes_called_with_too_many(mod):
    leaf(mod, 1.0, 2.0, 3.0).exp().grad_fn(mod.ones(3), mod.ones(3))


for attribute in ("grad", "data", "requires_grad", "_grad_fn", "_backward_hooks"):
    def deletion(mod, attribute=attribute):
        x = leaf(mod, 1.0, 2.0, 3.0)
        delattr(x, attribute)
        return x.grad

    deletion.__name__ = f"deletion_of_{attribute}"
    programs(deletion)


@programs
def isinstance_of_node(mod):
    y = leaf(mod, 1.0, 2.0, 3.0) * 2
    Node = mod.autograd.graph.Node
    return isinstance(y.grad_fn, Node), isinstance(y.grad_fn.next_functions[0][0], Node), isinstance(3, Node)


@programs
def gradient_edges(mod):
    edge_of = mod.autograd.graph.get_gradient_edge
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = x * x
    edge, end = edge_of(y), edge_of(x)
    del y
    return (mod.autograd.grad(edge, end, mod.ones(3), retain_graph=True), mod.autograd.grad(edge, x, mod.ones(3)),
            edge.output_nr, end.node.name())


@programs
def gradient_edge_of_a_constant(mod):
    mod.autograd.graph.get_gradient_edge(mod.ones(2))


# ----------------------------------------------------------------------------------------------------------- backward
@programs
def several_paths_add_up(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = x * 2
    (y * x + y + x).sum().backward()
    return x.grad


@programs
def accumulates_over_calls(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    for _ in range(3):
        (x * x).sum().backward()
    return x.grad


@programs
def only_leaves_keep_grad(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = x * 2
    y.sum().backward()
    return x.grad, y.grad


@programs
def non_scalar_needs_a_gradient(mod):
    (leaf(mod, 1.0, 2.0, 3.0) * 2).backward()


@programs
def gradient_given(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    (x * 2).backward(mod.tensor([1.0, 0.1, 0.01]))
    return x.grad


@programs
def one_element_is_scalar_enough(mod):
    x = leaf(mod, 3.0)
    (x * x).reshape(1, 1).backward()
    return x.grad


for number, gradient in enumerate([lambda m: m.ones(2), lambda m: m.ones(1), lambda m: m.ones(3).double(),
                                   lambda m: m.ones(3) * 1j, lambda m: m.ones(3).long()]):
    def gradient_of_another_kind(mod, gradient=gradient):
        x = leaf(mod, 1.0, 2.0, 3.0)
        (x * 2).backward(gradient(mod))
        return x.grad

    gradient_of_another_kind.__name__ = f"gradient_of_another_kind_{number}"
    programs(gradient_of_another_kind)


@programs
def constants_have_no_backward(mod):
    mod.ones(1).sum().backward()


@programs
def twice_without_retaining(mod):
    y = (leaf(mod, 1.0, 2.0, 3.0) * leaf(mod, 1.0, 2.0, 3.0)).sum()
    y.backward()
    y.backward()


@programs
def twice_retaining(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = (x * x).sum()
    y.backward(retain_graph=True)
    y.backward()
    return x.grad


@programs
def twice_where_nothing_was_saved(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = (x + x).sum()
    y.backward()
    y.backward()
    return x.grad


@programs
def several_roots(mod):
    x, y = leaf(mod, 1.0, 2.0, 3.0), leaf(mod, 1.0, 2.0, 3.0)
    a, b = x * y, x + y
    mod.autograd.backward([a.sum(), b, a], [None, mod.ones(3), mod.ones(3)])
    return x.grad, y.grad


@programs
def the_same_root_twice(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    a = (x * x).sum()
    mod.autograd.backward([a, a])
    return x.grad


@programs
def a_leaf_as_root(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    x.backward(mod.ones(3))
    x.backward(mod.ones(3))
    return x.grad


@programs
def a_root_below_another(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = x * 2
    z = y * 3
    mod.autograd.backward([z.sum(), y.sum()])
    return x.grad


@programs
def inputs_argument(mod):
    x, w = leaf(mod, 1.0, 2.0, 3.0), leaf(mod, 1.0, 2.0, 3.0)
    y = x * 2
    (y * w).sum().backward(inputs=[w, y])
    return x.grad, w.grad, y.grad


@programs
def inputs_argument_single(mod):
    x, w = leaf(mod, 1.0, 2.0, 3.0), leaf(mod, 1.0, 2.0, 3.0)
    (x * w).sum().backward(inputs=x)
    return x.grad, w.grad


@programs
def inputs_argument_empty(mod):
    leaf(mod, 1.0, 2.0, 3.0).sum().backward(inputs=[])


@programs
def create_graph_in_backward(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    (x ** 3).sum().backward(create_graph=True)
    first = x.grad
    x.grad = None
    first.sum().backward()
    return first, x.grad


@programs
def grads_are_not_shared(mod):
    x, y = leaf(mod, 1.0, 2.0, 3.0), leaf(mod, 1.0, 2.0, 3.0)
    (x + y).sum().backward()
    x.grad.add_(100)
    return x.grad, y.grad


@programs
def the_given_gradient_is_not_shared(mod):
    x, g = leaf(mod, 1.0, 2.0, 3.0), mod.ones(3)
    (x + 0).backward(g)
    x.grad.add_(100)
    return g, x.grad


@programs
def accumulation_writes_in_place(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    x.sum().backward()
    kept = x.grad
    x.sum().backward()
    return kept is x.grad, kept


@programs
def accumulation_with_create_graph_makes_a_new_tensor(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    x.sum().backward()
    kept = x.grad
    (x * x).sum().backward(create_graph=True)
    return kept is x.grad, kept


@programs
def broadcasting(mod):
    x, y = mod.ones(3, 1, requires_grad=True), mod.ones(2, requires_grad=True)
    (x * y * mod.arange(6.0).reshape(3, 2)).sum().backward()
    return x.grad, y.grad


@programs
def mixed_dtypes(mod):
    x, y = leaf(mod, 1.0, 2.0, 3.0), leaf(mod, 1.0, 2.0, 3.0, dtype=mod.float64)
    (x * y).sum().backward()
    return x.grad, y.grad


@programs
def through_integers(mod):
    return leaf(mod, 1.0, 2.0, 3.0).long().float()


@programs
def complex_chain(mod):
    z = mod.tensor([1 + 2j, 3 - 1j], requires_grad=True)
    (z * z.conj()).real.sum().backward()
    return z.grad


@programs
def complex_times_real(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    z = x * (2 + 1j)
    z.abs().sum().backward()
    return x.grad


@programs
def complex_root(mod):
    (leaf(mod, 1.0, 2.0, 3.0) * 1j).sum().backward()


@programs
def undefined_gradients_of_several_outputs(mod):
    x = mod.arange(6.0).requires_grad_()
    b = x.split(2)[1]
    (b * 2).sum().backward()
    return x.grad


@programs
def part_of_max(mod):
    x = leaf(mod, 1.0, 5.0, 5.0)
    values, indices = x.max(0)
    values.backward()
    return x.grad, indices.requires_grad


# --------------------------------------------------------------------------------------------------------------- grad
@programs
def grad_leaves_dot_grad_alone(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    return mod.autograd.grad((x * x).sum(), x), x.grad


@programs
def grad_of_non_leaves(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = x * 2
    z = y * y
    return mod.autograd.grad(z.sum(), [y, x, z])


@programs
def grad_unused(mod):
    x, w = leaf(mod, 1.0, 2.0, 3.0), leaf(mod, 1.0, 2.0, 3.0)
    mod.autograd.grad(x.sum(), [x, w])


@programs
def grad_unused_allowed(mod):
    x, w = leaf(mod, 1.0, 2.0, 3.0), leaf(mod, 1.0, 2.0, 3.0)
    return mod.autograd.grad(x.sum(), [x, w], allow_unused=True)


@programs
def grad_materialized(mod):
    x, w = leaf(mod, 1.0, 2.0, 3.0), leaf(mod, 1.0, 2.0, 3.0)
    return mod.autograd.grad(x.sum(), [x, w], materialize_grads=True)


@programs
def grad_contradiction(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    mod.autograd.grad(x.sum(), x, allow_unused=False, materialize_grads=True)


@programs
def grad_without_requires_grad(mod):
    mod.autograd.grad(leaf(mod, 1.0, 2.0, 3.0).sum(), mod.ones(3))


@programs
def grad_no_inputs(mod):
    mod.autograd.grad(leaf(mod, 1.0, 2.0, 3.0).sum(), [])


@programs
def grad_of_a_string(mod):
    mod.autograd.grad(leaf(mod, 1.0, 2.0, 3.0).sum(), ["x"])


@programs
def grad_outputs(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    return mod.autograd.grad([x * 2, (x * x).sum()], x, [mod.ones(3), None])


@programs
def grad_batched(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    return mod.autograd.grad(x * x, x, mod.eye(3), is_grads_batched=True)


@programs
def grad_batched_wrong_shape(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    mod.autograd.grad(x * x, x, mod.ones(3, 2), is_grads_batched=True)


@programs
def same_input_twice(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    return mod.autograd.grad((x * x).sum(), [x, x])


@programs
def higher_orders(mod):
    x = leaf(mod, 2.0, dtype=mod.float64)
    y = x ** 5
    found = []
    for _ in range(5):
        y, = mod.autograd.grad(y.sum(), x, create_graph=True)
        found.append(y.detach())
    return found


@programs
def gradient_penalty(mod):
    x, w = leaf(mod, 1.0, 2.0, 3.0), leaf(mod, 1.0, 2.0, 3.0)
    y = (x * w).sin().sum()
    g, = mod.autograd.grad(y, x, create_graph=True)
    ((g.norm() - 1) ** 2).backward()
    return w.grad, x.grad


@programs
def partial_graph_is_freed(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = x * x
    mod.autograd.grad(y.sum(), x)
    return mod.autograd.grad(y.sum(), x)


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)


def test_variable_is_tensor():
    from flambeau.autograd import Variable
    x = Variable(flambeau.ones(2), requires_grad=True)
    assert isinstance(x, Variable) and isinstance(x, flambeau.Tensor) and x.requires_grad
    with pytest.raises(TypeError):
        Variable([1.0])
