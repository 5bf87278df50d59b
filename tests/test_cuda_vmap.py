"""vmap and derivatives of functions on a CUDA device, beside the CPU. Without a GPU the host plays one."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import agree, draw

import flambeau as fl
import flambeau.nn.functional as F
from flambeau.func import grad, hessian, jacfwd, jacrev, jvp, vmap

pytestmark = needs_gxx


@pytest.mark.parametrize("function", [
    lambda a: a * 2 + 1, lambda a: (a @ a).tanh(), lambda a: F.softmax(a, 0), lambda a: a.sum(), lambda a: a.reshape(2, 2).t(),
    lambda a: a[1:], lambda a: a.new_zeros(3) + a[0], lambda a: fl.cat([a, a * 2]), lambda a: a.sort()[0],
    lambda a: F.layer_norm(a, (4,)), lambda a: fl.where(a > 0, a, 0.0), lambda a: a.clone().mul_(2), lambda a: fl.outer(a, a)])
def test_examples(function, cuda):
    agree(vmap(function), draw(3, 4))
    agree(vmap(vmap(function)), draw(2, 3, 4))
    agree(vmap(function, in_dims=1), draw(4, 3))


def test_positions_of_each_example(cuda):
    at = fl.tensor([[0, 2], [1, 1], [3, 0]])
    agree(vmap(lambda a, i: a[i]), draw(3, 4), at)
    agree(vmap(lambda a, i: a.index_select(0, i)), draw(3, 4), at)
    agree(vmap(lambda a, i: a.gather(0, i)), draw(3, 4), at)
    agree(vmap(lambda w, i: F.embedding(i, w)), draw(3, 4, 5), at)
    agree(vmap(lambda i: F.embedding(i, fl.eye(4, device=i.device))), at)


def test_derivatives(cuda):
    def loss(w, x):
        return ((x @ w).sigmoid() ** 2).sum()
    agree(lambda w, x: vmap(grad(loss), (None, 0))(w, x), draw(4), draw(5, 4))
    for of in (jacrev, jacfwd):
        agree(lambda x, of=of: of(lambda a: a ** 3)(x), draw(4))
    agree(lambda x: hessian(lambda a: (a ** 3).sum())(x), draw(4))
    agree(lambda x: jvp(lambda a: a.exp(), (x,), (x,)), draw(4))


def test_results_stay_on_their_device(cuda):
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu!"):
        fl.tensor(1.0).add_(fl.ones((), device=cuda))
    with pytest.raises(RuntimeError, match="at least two devices, cuda:0 and cpu!"):
        fl.ones(3).add_(fl.ones(3, device=cuda))
