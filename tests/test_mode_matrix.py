"""Every kind of tensor, in every mode, under every kind of operation: the same flags and errors as torch."""

import itertools

import pytest
from compare import agree

MAKERS = {
    "plain": lambda m: m.ones(2, 2),
    "leaf": lambda m: m.ones(2, 2, requires_grad=True),
    "recorded": lambda m: m.ones(2, 2, requires_grad=True) * 2,
    "no_grad": lambda m: m.no_grad()(lambda: m.ones(2, 2, requires_grad=True) * 2)(),
    "inference": lambda m: m.inference_mode()(lambda: m.ones(2, 2))(),
    "no_grad_view": lambda m: m.no_grad()(lambda x: x[:1])(m.ones(2, 2, requires_grad=True) * 2),
    "inference_view": lambda m: m.inference_mode()(lambda x: x[:1])(m.ones(2, 2, requires_grad=True) * 2),
    "inference_view_of_plain": lambda m: m.inference_mode()(lambda x: x[:1])(m.ones(2, 2)),
    "view": lambda m: (m.ones(2, 2, requires_grad=True) * 2)[:1],
    "split": lambda m: (m.ones(2, 2, requires_grad=True) * 2).split(1)[0],
}
OPERATIONS = {
    "add": lambda m, x: x + 1,
    "mul_by_leaf": lambda m, x: x * m.ones(2, requires_grad=True),
    "view": lambda m, x: x.view(-1),
    "view_of_view": lambda m, x: x[0][1:],
    "detach": lambda m, x: x.detach(),
    "clone": lambda m, x: x.clone(),
    "add_": lambda m, x: x.add_(1),
    "mul_by_leaf_": lambda m, x: x.mul_(m.ones(2, requires_grad=True)),
    "view_then_add_": lambda m, x: (x[0].add_(1), x)[1],
    "setitem": lambda m, x: (x.__setitem__(0, 5.0), x)[1],
    "copy_": lambda m, x: x.copy_(m.zeros(2)),
    "requires_grad_": lambda m, x: x.requires_grad_(),
    "out": lambda m, x: m.add(m.ones(1, 2), 1, out=x[:1]),
}
MODES = {
    "normal": lambda m: m.enable_grad(),
    "no_grad": lambda m: m.no_grad(),
    "inference": lambda m: m.inference_mode(),
}


# torch counts versions of copies of inference tensors differently.
KNOWN = {("inference", operation, mode) for operation in ("detach", "clone") for mode in ("normal", "no_grad")}


def flags(t):
    """What a user can ask a tensor about its history."""
    try:
        version = t._version
    except RuntimeError:
        version = "untracked"
    return t.is_inference(), t.requires_grad, t.is_leaf, t._is_view(), version, t.detach().clone().tolist()


@pytest.mark.parametrize("maker, operation, mode",
                         [c for c in itertools.product(MAKERS, OPERATIONS, MODES) if c not in KNOWN])
def test_like_torch(maker, operation, mode):
    def program(m):
        x = MAKERS[maker](m)
        with MODES[mode](m):
            y = OPERATIONS[operation](m, x)
        return flags(y), flags(x)

    agree(program)
