"""nn.utils.parametrize and the ready-made parametrizations: orthogonal, spectral and weight norm; against PyTorch."""

import copy
import pickle

import pytest
import torch.nn.utils.prune  # noqa: F401 (PyTorch's own is not imported by itself)
from compare import agree_in_words
from layer_cases import dense


# ---------------------------------------------------------------------------------------------------------- parametrize
def kinds(torch):
    module = torch.nn.Module

    class Symmetric(module):
        def forward(self, x):
            return x.triu() + x.triu(1).transpose(-1, -2)

        def right_inverse(self, a):
            return a.triu()

    class Row(module):
        def forward(self, x):
            return x[0]

    class Double(module):
        def forward(self, x):
            return x.double()

    class Number(module):
        def forward(self, x):
            return 3

    class Two(module):
        def forward(self, a, b):
            return a + b

        def right_inverse(self, x):
            return x / 2, x / 2

    class OneWay(module):
        def forward(self, x):
            return x * 2

    class BackToRow(OneWay):
        def right_inverse(self, x):
            return x[0]

    class BackToNumber(OneWay):
        def right_inverse(self, x):
            return 3

    class BackToList(OneWay):
        def right_inverse(self, x):
            return [3]

    class BackToDouble(OneWay):
        def right_inverse(self, x):
            return x.double()

    return {k.__name__: k for k in (Symmetric, Row, Double, Number, Two, OneWay, BackToRow, BackToNumber, BackToList,
                                    BackToDouble)}


@pytest.mark.parametrize("second", [False, True])
@pytest.mark.parametrize("kind", ["Symmetric", "Row", "Double", "Number", "Two", "OneWay", "BackToRow", "BackToNumber",
                                  "BackToList", "BackToDouble"])
def test_register_parametrization(kind, second):
    def program(torch):
        P = torch.nn.utils.parametrize
        m = dense(torch, 3, 3)
        if second:
            P.register_parametrization(m, "weight", kinds(torch)["Symmetric"]())
        P.register_parametrization(m, "weight", kinds(torch)[kind]())
        return (m, m.weight, list(m.state_dict()), [n for n, _ in m.named_parameters()], type(m),
                m.parametrizations.weight,
                P.is_parametrized(m), P.is_parametrized(m, "weight"), P.is_parametrized(m, "bias"),
                P.type_before_parametrizations(m))

    agree_in_words(program, text=not (kind == "Two" and second))


def test_life_of_a_parametrized_module():
    def program(torch):
        P = torch.nn.utils.parametrize
        m = dense(torch, 3, 3)
        P.register_parametrization(m, "weight", kinds(torch)["Symmetric"]())
        original = m.parametrizations.weight.original
        m.weight = torch.arange(9.0).reshape(3, 3)
        assigned = m.weight
        m(torch.ones(1, 3)).sum().backward()
        with P.cached():
            once = m.weight is m.weight
        afterwards = m.weight is m.weight
        twin = copy.deepcopy(m)
        said = [original, assigned, original.grad, once, afterwards, type(twin), twin.weight]
        P.remove_parametrizations(m, "weight")
        said += [m, type(m), m.weight, list(m.state_dict()), hasattr(m, "parametrizations"), m.weight is original,
                 type(m.weight), P.is_parametrized(twin)]
        return said

    agree_in_words(program)


PARAMETRIZE_ERRORS = {
    "no such tensor": lambda torch, P: P.register_parametrization(dense(torch, 3, 3), "foo", kinds(torch)["Symmetric"]()),
    "remove none": lambda torch, P: P.remove_parametrizations(dense(torch, 3, 3), "weight"),
    "set one way": lambda torch,
    P: setattr(P.register_parametrization(dense(torch, 3, 3), "weight", kinds(torch)["OneWay"]()),
                                            "weight", torch.ones(3, 3)),
    "leave two": lambda torch, P: P.remove_parametrizations(
        P.register_parametrization(dense(torch, 3, 3), "weight", kinds(torch)["Two"]()), "weight", leave_parametrized=False),
    "pickle": lambda torch,
    P: pickle.dumps(P.register_parametrization(dense(torch, 3, 3), "weight", kinds(torch)["Symmetric"]())),
    "unsafe": lambda torch,
    P: P.register_parametrization(dense(torch, 3, 3), "weight", kinds(torch)["Row"](), unsafe=True).weight.shape,
    "original stays": lambda torch, P: P.remove_parametrizations(
        P.register_parametrization(dense(torch, 3, 3), "weight", kinds(torch)["OneWay"]()), "weight",
        leave_parametrized=False).weight,
    "two removed": lambda torch, P: P.remove_parametrizations(
        P.register_parametrization(dense(torch, 3, 3), "weight", kinds(torch)["Two"]()), "weight").weight,
    "transfer": lambda torch, P: P.transfer_parametrizations_and_params(
        P.register_parametrization(dense(torch, 3, 3), "weight", kinds(torch)["Symmetric"]()), dense(torch, 3, 3)).weight,
}


@pytest.mark.parametrize("case", PARAMETRIZE_ERRORS)
def test_parametrize_edges(case):
    agree_in_words(lambda torch: PARAMETRIZE_ERRORS[case](torch, torch.nn.utils.parametrize))


def test_state_dict_round_trip_of_parametrized_modules():
    def program(torch):
        make = lambda: torch.nn.utils.parametrizations.weight_norm(dense(torch, 3, 3))
        a, b = make(), make()
        with torch.no_grad():
            a.parametrizations.weight.original0.mul_(2)
        answer = str(b.load_state_dict(a.state_dict()))
        old = {"bias": torch.zeros(3), "weight_g": torch.ones(3, 1), "weight_v": torch.ones(3, 3)}
        return answer, b.weight, str(make().load_state_dict(old))

    agree_in_words(program, tolerance=1e-6)


# -------------------------------------------------------------------------------------------------- the ready-made ones
SHAPES = [(3, 3), (5, 3), (3, 5)]


@pytest.mark.parametrize("sizes", SHAPES, ids=str)
@pytest.mark.parametrize("options", [{}, {"orthogonal_map": "matrix_exp"}, {"orthogonal_map": "cayley"},
                                     {"orthogonal_map": "householder"},
                                     {"orthogonal_map": "householder", "use_trivialization": False},
                                     {"orthogonal_map": "cayley", "use_trivialization": False}], ids=str)
def test_orthogonal(options, sizes):
    def program(torch):
        m = torch.nn.utils.parametrizations.orthogonal(dense(torch, *sizes), **options)
        w = m.weight
        (w * torch.arange(float(w.numel())).reshape(w.shape)).sum().backward()
        tall = w if w.shape[0] >= w.shape[1] else w.T
        error = (tall.T @ tall - torch.eye(min(sizes))).abs().max() < 1e-5
        return error, w, m.parametrizations.weight.original.grad, sorted(m.state_dict())

    agree_in_words(program, tolerance=1e-4)


ORTHOGONAL = {
    "vector": lambda torch, Z: Z.orthogonal(dense(torch, 3, 3), "bias"),
    "map": lambda torch, Z: Z.orthogonal(dense(torch, 3, 3), orthogonal_map="foo"),
    "name": lambda torch, Z: Z.orthogonal(dense(torch, 3, 3), "zz"),
    "assign without base": lambda torch,
    Z: setattr(Z.orthogonal(dense(torch, 3, 3), use_trivialization=False), "weight", torch.eye(3)),
    "assign a wrong shape": lambda torch, Z: setattr(Z.orthogonal(dense(torch, 3, 5)), "weight", torch.eye(3)),
    "assign": lambda torch, Z: (lambda m: (setattr(m, "weight", torch.eye(3)), m.weight))(Z.orthogonal(dense(torch, 3, 3))),
    "spectral name": lambda torch, Z: Z.spectral_norm(dense(torch, 3, 3), "zz"),
    "spectral iterations": lambda torch, Z: Z.spectral_norm(dense(torch, 3, 3), n_power_iterations=0),
    "spectral dim": lambda torch, Z: Z.spectral_norm(dense(torch, 3, 3), dim=5),
    "spectral of a vector": lambda torch,
    Z: (lambda m: (m.bias.data.fill_(2), Z.spectral_norm(m, "bias").bias)[1])(dense(torch, 3, 3)),
}


@pytest.mark.parametrize("case", ORTHOGONAL)
def test_edges_of_the_ready_made_ones(case):
    agree_in_words(lambda torch: ORTHOGONAL[case](torch, torch.nn.utils.parametrizations), tolerance=1e-5)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("options", [{}, {"n_power_iterations": 3}, {"dim": 1}])
def test_spectral_norm(options, old):
    def program(torch):
        make = torch.nn.utils.spectral_norm if old else torch.nn.utils.parametrizations.spectral_norm
        m = make(dense(torch, 4, 3), **options)
        outs = [m(torch.ones(1, 4)) for _ in range(3)]
        outs[-1].sum().backward()
        m.eval()
        outs += [m(torch.ones(1, 4)), m(torch.ones(1, 4))]
        grads = [p.grad for p in m.parameters()]
        return outs, grads, dict(m.state_dict()), dict(m.state_dict()._metadata)

    agree_in_words(program, tolerance=1e-5)


@pytest.mark.parametrize("old", [False, True])
@pytest.mark.parametrize("dim", [0, 1, None])
def test_weight_norm(dim, old):
    def program(torch):
        make = torch.nn.utils.weight_norm if old else torch.nn.utils.parametrizations.weight_norm
        m = make(dense(torch, 4, 3), dim=dim)
        out = m(torch.ones(1, 4))
        out.sum().backward()
        grads = [p.grad for p in m.parameters()]
        removed = torch.nn.utils.remove_weight_norm(m) if old else torch.nn.utils.parametrize.remove_parametrizations(m,
                                                                                                                      "weight")
        return out, grads, removed, list(removed.state_dict()), removed.weight

    agree_in_words(program, tolerance=1e-5)


def test_removing_the_old_norms():
    agree_in_words(lambda torch: torch.nn.utils.remove_weight_norm(dense(torch, 3, 3)))
    agree_in_words(lambda torch: torch.nn.utils.remove_spectral_norm(dense(torch, 3, 3)))
    agree_in_words(lambda torch: (lambda m: (m(torch.ones(1, 3)), list(torch.nn.utils.remove_spectral_norm(m).state_dict()),
                                             m.weight,
                                             m._state_dict_hooks,
                                             m._forward_pre_hooks)[1:])(torch.nn.utils.spectral_norm(dense(torch, 3, 3))),
                   tolerance=1e-5)
    agree_in_words(lambda torch: torch.nn.utils.weight_norm(torch.nn.utils.weight_norm(dense(torch, 3, 3))),
                   text=False, warned=False)
