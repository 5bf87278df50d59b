"""nn.init: from the same seed the numbers of PyTorch, and its warnings and errors."""

import pytest
from compare import agree_in_words

import flambeau

SHAPES = [(3, 5), (5, 3), (4, 4), (17, 33), (6, 4, 3), (8, 3, 5, 5), (4, 2, 3, 3, 3)]
INITS = {
    "uniform_": {"a": -0.5, "b": 2.0}, "normal_": {"mean": 1.0, "std": 0.2}, "trunc_normal_": {"std": 0.02},
    "constant_": {"val": 0.3}, "ones_": {}, "zeros_": {}, "xavier_uniform_": {"gain": 2.0}, "xavier_normal_": {},
    "kaiming_uniform_": {"a": 5**0.5}, "kaiming_normal_": {"mode": "fan_out", "nonlinearity": "relu"},
    "orthogonal_": {"gain": 1.5}}
TRUNCATED = [dict(), dict(std=0.02), dict(mean=0.5, a=0.0, b=1.0), dict(mean=5.0, std=1.0, a=0.0, b=1.5),
             dict(a=2.0, b=2.5)]
ROUNDED = {"orthogonal_": 2e-5, "trunc_normal_": 3e-7, "normal_": 3e-7, "xavier_normal_": 3e-7, "kaiming_normal_": 3e-7}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", INITS)
def test_numbers_are_pytorchs(name, shape):
    def program(torch):
        torch.manual_seed(7)
        tensor = torch.empty(shape)
        assert getattr(torch.nn.init, name)(tensor, **INITS[name]) is tensor
        return tensor, torch.rand(2)  # and the generator is where PyTorch's is

    agree_in_words(program, tolerance=ROUNDED.get(name, 0.0))


@pytest.mark.parametrize("name",
                         ["uniform_", "normal_", "trunc_normal_", "xavier_uniform_", "kaiming_normal_", "orthogonal_"])
def test_generators_and_float64(name):
    def program(torch):
        torch.manual_seed(1)
        g = torch.Generator()
        g.manual_seed(3)
        w = torch.nn.Parameter(torch.empty(4, 6, dtype=torch.float64))
        getattr(torch.nn.init, name)(w, generator=g)
        return w, torch.rand(1), w.is_leaf

    agree_in_words(program, tolerance=1e-12)


@pytest.mark.parametrize("options", TRUNCATED, ids=str)
def test_truncated_normal(options):
    def program(torch):
        torch.manual_seed(3)
        return torch.nn.init.trunc_normal_(torch.empty(5, 7), **options), torch.rand(1)

    agree_in_words(program, tolerance=1e-6)


def test_eye_dirac_sparse():
    def program(torch):
        init = torch.nn.init
        torch.manual_seed(0)
        return (init.eye_(torch.empty(3, 4)), init.dirac_(torch.empty(4, 2, 3)),
                init.dirac_(torch.empty(4, 2, 3, 3), 2),
                init.dirac_(torch.empty(2, 3, 1, 2, 3)), init.sparse_(torch.empty(10, 3), 0.3), torch.rand(1))

    agree_in_words(program, tolerance=3e-7)


@pytest.mark.parametrize("name",
                         ["linear", "conv2d", "conv_transpose3d", "sigmoid", "tanh", "relu", "leaky_relu", "selu",
                          "foo"])
@pytest.mark.parametrize("param", [None, 0.3, 2, "s", True])
def test_gains(name, param):
    agree_in_words(lambda torch: torch.nn.init.calculate_gain(name, param))


ERRORS = {
    "xavier of a vector": lambda torch: torch.nn.init.xavier_uniform_(torch.empty(3)),
    "kaiming of a vector": lambda torch: torch.nn.init.kaiming_normal_(torch.empty(3)),
    "mode": lambda torch: torch.nn.init.kaiming_uniform_(torch.empty(3, 3), mode="foo"),
    "kaiming of nothing": lambda torch: torch.nn.init.kaiming_uniform_(torch.empty(0, 3)),
    "eye of a vector": lambda torch: torch.nn.init.eye_(torch.empty(3)),
    "dirac of a matrix": lambda torch: torch.nn.init.dirac_(torch.empty(3, 3)),
    "dirac groups": lambda torch: torch.nn.init.dirac_(torch.empty(3, 2, 2), 2),
    "sparse of a vector": lambda torch: torch.nn.init.sparse_(torch.empty(3), 0.1),
    "orthogonal of a vector": lambda torch: torch.nn.init.orthogonal_(torch.empty(3)),
    "orthogonal of nothing": lambda torch: torch.nn.init.orthogonal_(torch.empty(0, 3)),
    "far mean": lambda torch: torch.nn.init.trunc_normal_(torch.empty(3), mean=10.0).shape == (3,),
    "uniform backwards": lambda torch: torch.nn.init.uniform_(torch.empty(3), 1, 0),
    "old constant": lambda torch: torch.nn.init.constant(torch.empty(2), 3),
    "old xavier": lambda torch: torch.nn.init.xavier_uniform(torch.empty(2, 2)).shape == (2, 2),
    "integers": lambda torch: torch.nn.init.ones_(torch.empty(2, dtype=torch.int32)),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_and_warnings(case):
    agree_in_words(ERRORS[case], text=case != "uniform backwards")


def test_nothing_is_recorded_and_all_names_are_there():
    import torch
    w = flambeau.nn.Parameter(flambeau.empty(3, 3))
    for name in INITS:
        getattr(flambeau.nn.init, name)(w, **INITS[name])
        assert w.is_leaf and w.requires_grad
    public = [n for n in dir(torch.nn.init) if n.endswith("_") and not n.startswith("_")]
    assert all(hasattr(flambeau.nn.init, n) for n in public)
