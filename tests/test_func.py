"""torch.func: derivatives of functions, vmap, calls without state; the same programs under PyTorch and flambeau."""

import pytest
from compare import Programs, agree

programs = Programs()


@programs
def grad_of_a_sum(t):
    return t.func.grad(lambda x: t.sin(x).sum())(t.arange(3.))


@programs
def grad_of_grad(t):
    return t.func.grad(t.func.grad(t.sin))(t.tensor(1.))


@programs
def grad_keeps_what_it_closes_over(t):
    w = t.ones(3, requires_grad=True)
    made = t.func.grad(lambda x: (w * x * x).sum())(t.arange(3.))
    made.sum().backward()
    return made.requires_grad, w.grad


@programs
def grad_under_no_grad(t):
    with t.no_grad():
        return t.func.grad(lambda x: (x * x).sum())(t.arange(3.))


@programs
def grad_of_dicts(t):
    return t.func.grad(lambda d: d["a"].sum() * d["b"].sum())({"a": t.ones(2), "b": t.ones(3)})


@programs
def grad_with_aux(t):
    return t.func.grad(lambda x: ((x * x).sum(), x + 1), has_aux=True)(t.arange(3.))


@programs
def grad_and_value_of_two(t):
    return t.func.grad_and_value(lambda x, y: (x * y).sum(), argnums=(0, 1))(t.arange(3.), t.ones(3))


@programs
def jacobians(t):
    return t.func.jacrev(t.sin)(t.arange(3.)), t.func.jacfwd(t.sin)(t.arange(3.)), t.func.hessian(
        lambda x: (x ** 3).sum())(t.arange(3.))


@programs
def jacobian_of_several(t):
    return t.func.jacrev(lambda x, y: (x * y, x + y), argnums=(0, 1))(t.ones(2), t.ones(2))


@programs
def vjp(t):
    _, pull = t.func.vjp(lambda x: (x.sin(), x.cos()), t.arange(3.))
    return pull((t.ones(3), t.ones(3)))


@programs
def jvp(t):
    return t.func.jvp(lambda x, y: x * y, (t.arange(3.), t.ones(3)), (t.ones(3), t.ones(3)))


@programs
def linearized(t):
    return t.func.linearize(t.sin, t.ones(2))[1](t.ones(2))


@programs
def vmap_of_dot(t):
    return t.vmap(t.dot)(t.arange(6.).reshape(2, 3), t.ones(2, 3))


@programs
def vmap_dims(t):
    return t.vmap(lambda x, y: (x + y, x * 2), in_dims=(1, None), out_dims=(1, 0))(t.arange(6.).reshape(2, 3), t.ones(2))


@programs
def vmap_nested(t):
    return t.vmap(t.vmap(lambda a, b: a * b, in_dims=(None, 0)), in_dims=(0, None))(t.arange(3.), t.arange(2.))


@programs
def vmap_of_jacrev(t):
    return t.func.vmap(t.func.jacrev(lambda x: x ** 2))(t.ones(2, 3))


@programs
def vmap_refuses_random_numbers(t):
    return t.vmap(lambda x: x + t.rand(1))(t.zeros(3))


@programs
def vmap_same_random_numbers(t):
    made = t.vmap(lambda x: x + t.rand(2), randomness="same")(t.zeros(3))
    return bool((made[0] == made[1]).all())


@programs
def vmap_sizes_differ(t):
    return t.vmap(t.dot)(t.ones(2, 3), t.ones(3, 3))


@programs
def vmap_no_such_dim(t):
    return t.vmap(t.sin, in_dims=2)(t.ones(2))


@programs
def grad_wants_a_scalar(t):
    return t.func.grad(t.sin)(t.ones(2))


@programs
def grad_of_an_argument_that_is_not_there(t):
    return t.func.grad(t.sin, argnums=1)(t.tensor(1.))


@programs
def stacked_models(t):
    parameters, _ = t.func.stack_module_state([t.nn.Linear(2, 3) for _ in range(4)])
    return {k: (tuple(v.shape), v.requires_grad) for k, v in parameters.items()}


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_same_as_pytorch(program):
    agree(program)


def test_gradients_of_each_example():
    def program(t):
        t.manual_seed(0)
        m = t.nn.Linear(3, 2)

        def loss(p, x, y):
            return ((t.func.functional_call(m, p, (x,)) - y) ** 2).mean()

        made = t.func.vmap(t.func.grad(loss), in_dims=(None, 0, 0))(
            {k: v.detach() for k, v in m.named_parameters()}, t.randn(4, 3), t.randn(4, 2))
        return {k: v.tolist() for k, v in made.items()}

    agree(program)


TREES = [1, [1, (2, 3)], {"b": 1, "a": [2, None]}, (), [[], {}], {"x": (1, {"y": [2]})}]


@pytest.mark.parametrize("tree", TREES, ids=repr)
def test_trees(tree):
    from torch.utils import _pytree as theirs

    from flambeau.utils import _pytree as ours
    leaves, spec = ours.tree_flatten(tree)
    assert leaves == theirs.tree_flatten(tree)[0]
    assert ours.tree_unflatten(leaves, spec) == tree
    assert spec == ours.tree_structure(tree)
    assert ours.tree_map(lambda v: [v], tree) == theirs.tree_map(lambda v: [v], tree)
    with pytest.raises(ValueError):
        ours.tree_unflatten([*leaves, 0], spec)
