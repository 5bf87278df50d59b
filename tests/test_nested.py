"""Nested tensors (layouts jagged and strided) beside PyTorch."""

import copy
import pickle
import warnings

import pytest
from compare import agree, both_raise

import flambeau


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():  # PyTorch calls its support a prototype
        warnings.simplefilter("ignore")
        yield


def parts(t):
    return [t.arange(6.0).view(2, 3), t.arange(9.0).view(3, 3) - 4]


def jagged(t, **options):
    return t.nested.nested_tensor(parts(t), layout=t.jagged, **options)


def strided(t):
    return t.nested.nested_tensor(parts(t))


def opened(v):
    """Nested tensors as the tuples of their parts."""
    if isinstance(v, (tuple, list)):
        return tuple(opened(x) for x in v)
    return tuple(v.unbind()) if getattr(v, "is_nested", False) else v


JAGGED = {
    "PyTorch's names": lambda t, x: (x._values, x._offsets, x._lengths, x._ragged_idx, x._get_max_seqlen(),
                                     x._get_min_seqlen()),
    "special functions": lambda t, x: (t.special.i1(x), t.special.ndtr(x), t.special.erfcx(x), t.special.xlog1py(x, abs(x)),
                                       t.special.entr(x)),
    "tests of elements": lambda t, x: (x.isposinf(), x.isneginf(), x.isreal(), x.positive(), x.conj(), x.real, x.short(),
                                       x.byte()),
    "several results": lambda t, x: tuple(t.frexp(x)),
    "reflected division": lambda t, x: (2.0 / (x.abs() + 1), x.float_power(2)),
    "of two": lambda t, x: (t.max(x, x * 0), t.min(x, other=x * 0), t.bmm(x, mat2=t.ones(2, 3, 2))),
    "batch and ragged dimension": lambda t, x: [getattr(t, name)(x, dim=(0, 1), keepdim=kept)
                                                for name in ("sum", "mean", "amax", "amin") for kept in (False, True)],
    "chunks of parts": lambda t, x: (x.chunk(2, dim=0), t.chunk(x, chunks=1)),
    "where a mask says": lambda t, x: (lambda y: t.masked_select(y, y > 1))(t.nested.nested_tensor(
        [t.arange(3.0), t.arange(4.0)], layout=t.jagged)),
    "facts": lambda t, x: (x.is_nested, x.dim(), x.numel(), x.size(0), x.size(2), x.offsets(), x.values(), len(x)),
    "padded": lambda t, x: (x.to_padded_tensor(-1.0), t.nested.to_padded_tensor(x, 0.0, (2, 4, 3)),
                            x.to_padded_tensor(0.0, (2, 2, 3))),
    "pointwise": lambda t, x: (x * 2, x + x, x.sin() * x, -x, x / 3, x > 1, x.abs().sqrt(), x.clamp(0, 1), 1 - x),
    "with dense tensors": lambda t, x: (x + t.ones(3), x * t.tensor([1.0, 2.0]).view(2, 1, 1)),
    "activations": lambda t, x: (t.relu(x), t.nn.functional.gelu(x), t.sigmoid(x), t.nn.functional.silu(x)),
    "products": lambda t, x: (x @ t.ones(3, 2), t.nn.functional.linear(x, t.ones(2, 3), t.ones(2))),
    "norms": lambda t, x: (t.nn.functional.layer_norm(x, (3,)), t.nn.functional.rms_norm(x, (3,))),
    "softmax": lambda t, x: (x.softmax(-1), t.log_softmax(x, 2), x.softmax(1)),
    "sums": lambda t, x: (x.sum(), x.sum(-1), x.sum(1), x.mean(1), x.sum(-1, keepdim=True), x.amax(1)),
    "shapes": lambda t, x: (x.transpose(1, 2).transpose(1, 2), x.unsqueeze(-1), x.unflatten(-1, (3, 1)), x.view(2, -1, 3, 1),
                            x.select(2, 1), x[1], x.chunk(3, -1), x.narrow(2, 0, 1)),
    "joined": lambda t, x: t.cat([x, x], -1),
    "chosen": lambda t, x: (t.where(x > 1, x, x * 2), x.masked_fill(x > 1, 0.0)),
    "like it": lambda t, x: (t.zeros_like(x), t.ones_like(x), x.to(t.float64), x.clone()),
}


@pytest.mark.parametrize("name", JAGGED)
def test_jagged(name):
    agree(lambda t: opened(JAGGED[name](t, jagged(t))), graph=False)


STRIDED = {
    "facts": lambda t, x: (x.is_nested, x.dim(), x.numel(), x.size(0), x.size(2), repr(x)),
    "pointwise": lambda t, x: (x * 3, x + x),
    "softmax": lambda t, x: x.softmax(-1),
    "linear": lambda t, x: t.nn.functional.linear(x, t.ones(2, 3)),
    "turned": lambda t, x: x.transpose(1, 2),
    "products": lambda t, x: t.bmm(x, x.transpose(1, 2).contiguous()),
    "part": lambda t, x: x[1],
    "padded": lambda t, x: x.to_padded_tensor(0.0),
}


@pytest.mark.parametrize("name", STRIDED)
def test_strided(name):
    agree(lambda t: opened(STRIDED[name](t, strided(t))), graph=False)


def test_constructors():
    agree(lambda t: opened((
        t.nested.nested_tensor_from_jagged(t.arange(10.0).view(5, 2), t.tensor([0, 2, 5])),
        t.nested.nested_tensor_from_jagged(t.arange(10.0).view(5, 2), lengths=t.tensor([2, 3])),
        t.nested.narrow(t.arange(12.0).view(3, 4), 1, t.tensor([0, 1, 0]), t.tensor([2, 2, 3]), layout=t.jagged),
        t.nested.masked_select(t.arange(6).view(2, 3), t.tensor([[True, False, True], [False, True, False]])),
        t.nested.nested_tensor([[1, 2], [3]]))))


def test_gradients_reach_the_parts():
    def program(t):
        leaves = [p.requires_grad_() for p in parts(t)]
        x = t.nested.as_nested_tensor(leaves, layout=t.jagged)
        y = t.nn.functional.layer_norm(x * x, (3,)).softmax(-1) * x
        y.to_padded_tensor(0.0).pow(2).sum().backward()
        return [p.grad for p in leaves]
    agree(program, tolerance=1e-6)


def test_gradient_of_a_nested_leaf():
    def program(t):
        x = jagged(t, requires_grad=True)
        (x * x).values().sum().backward()
        return opened(x.grad)
    agree(program)


def heads(t):
    t.manual_seed(0)
    return t.nested.nested_tensor([t.randn(2, 2, 4), t.randn(3, 2, 4)], layout=t.jagged).transpose(1, 2)


def test_attention_is_within_parts():
    attend = lambda t, **options: t.nn.functional.scaled_dot_product_attention(*[heads(t)] * 3, **options).transpose(1, 2)
    agree(lambda t: opened(attend(t)), tolerance=1e-6, graph=False)
    for part, made in zip(heads(flambeau).unbind(), attend(flambeau, is_causal=True).unbind()):  # PyTorch: on a GPU alone
        alone = flambeau.nn.functional.scaled_dot_product_attention(*[part.unsqueeze(0)] * 3, is_causal=True)
        assert flambeau.allclose(made.transpose(0, 1), alone.squeeze(0))


def test_layers():
    def program(t):
        t.manual_seed(0)
        net = t.nn.Sequential(t.nn.Linear(3, 4), t.nn.ReLU(), t.nn.LayerNorm(4), t.nn.Dropout(0.0))
        t.manual_seed(1)
        table = t.nn.Embedding(10, 4)
        words = t.nested.nested_tensor([t.tensor([1, 2]), t.tensor([3])], layout=t.jagged)
        return opened((net(jagged(t)), table(words)))
    agree(program, tolerance=1e-6, graph=False)


@pytest.mark.parametrize("program", [
    lambda t: jagged(t) + jagged(t),
    lambda t: strided(t).size(1),
    lambda t: strided(t).shape,
    lambda t: strided(t).sum(-1),
    lambda t: strided(t) @ t.ones(3, 2),
    lambda t: t.nested.nested_tensor(3),
    lambda t: t.nested.nested_tensor([t.ones(2, 3), t.ones(2)], layout=t.jagged),
    lambda t: t.nested.to_padded_tensor(strided(t), 0.0, (2, 2, 3)),
    lambda t: jagged(t).numpy(),
])
def test_refused(program):
    both_raise(program)


def test_copies():
    for x in (jagged(flambeau), strided(flambeau)):
        for other in (copy.deepcopy(x), pickle.loads(pickle.dumps(x)), x.clone()):
            assert other.layout is x.layout and all(map(flambeau.equal, other.unbind(), x.unbind()))


def test_what_is_missing_says_so():
    with pytest.raises(NotImplementedError, match="cumsum: not implemented for nested tensors"):
        flambeau.cumsum(jagged(flambeau), 1)
