"""In-place changes, views and version counters under autograd, compared with torch."""

import pytest
from compare import Programs, agree, leaf

programs = Programs()


# ------------------------------------------------------------------------------------------------- in-place and views
@programs
def leaf_in_place(mod):
    leaf(mod, 1.0, 2.0, 3.0).add_(1)


@programs
def view_of_leaf_in_place(mod):
    leaf(mod, 1.0, 2.0, 3.0)[0] = 3


@programs
def saved_then_changed(mod):
    x = leaf(mod, 1.0, 2.0, 3.0) * 1
    y = x * x
    x.add_(1)
    y.sum().backward()


@programs
def unsaved_then_changed(mod):
    x = leaf(mod, 1.0, 2.0, 3.0) * 1
    y = x + x
    x.add_(1)
    y.sum().backward()


@programs
def result_changed(mod):
    y = leaf(mod, 1.0, 2.0, 3.0).sigmoid()
    y.mul_(2)
    y.sum().backward()


@programs
def version_counts(mod):
    x = mod.ones(3)
    v = x[:1]
    seen = [x._version]
    v.add_(1)
    seen += [x._version, v._version]
    x.mul_(2)
    return [*seen, v._version, x.detach()._version, x.data._version]


@programs
def view_changed_in_place(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = x * 2
    y[0].mul_(10)
    y.sum().backward()
    return y, x.grad


@programs
def base_changed_in_place(mod):
    x = leaf(mod, 1.0, 2.0, 3.0)
    y = x * 2
    v = y[1:]
    y.mul_(10)
    (v * v).sum().backward()
    return v, x.grad


@programs
def in_place_of_a_constant(mod):
    x, y = leaf(mod, 1.0, 2.0, 3.0), mod.zeros(3)
    y += x * 2
    y[0] = x[1] * x[2]
    y.sum().backward()
    return y, x.grad


@pytest.mark.parametrize("program", programs, ids=programs.ids)
def test_like_torch(program):
    agree(program)
