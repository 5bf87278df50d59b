"""nn.utils (clipping, vectors, parametrizations, norms, pruning, sequences, fusion, functional calls)."""

import copy
import pickle

import pytest
import torch.nn.utils.prune  # noqa: F401 (PyTorch's own is not imported by itself)
from compare import agree_in_words
from layer_cases import layers

import flambeau


def dense(torch, *sizes):
    return layers(torch)[0](*(sizes or (3, 3)))


# --------------------------------------------------------------------------------------------------- gradients, vectors
def with_grads(torch, *grads):
    made = []
    for g in grads:
        p = torch.nn.Parameter(torch.ones(len(g)))
        p.grad = torch.tensor(g)
        made.append(p)
    return made


@pytest.mark.parametrize("norm", [2.0, 1.0, float("inf"), 0.5, 3])
@pytest.mark.parametrize("bound", [1.0, 100.0])
def test_clip_grad_norm(norm, bound):
    def program(torch):
        ps = with_grads(torch, [3.0, -4.0], [12.0, 0.0, 1.0])
        ps.append(torch.nn.Parameter(torch.ones(1)))
        total = torch.nn.utils.clip_grad_norm_(ps, bound, norm)
        return total, [p.grad for p in ps]

    agree_in_words(program, tolerance=1e-6)


CLIP = {
    "one": lambda torch, u, p: (u.clip_grad_norm_(p[0], 1.0), p[0].grad),
    "none": lambda torch, u, p: u.clip_grad_norm_([], 1.0),
    "empty generator": lambda torch, u, p: u.clip_grad_norm_((q for q in ()), 1.0),
    "generator": lambda torch, u, p: (u.clip_grad_norm_((q for q in p), 1.0), p[1].grad),
    "value": lambda torch, u, p: (u.clip_grad_value_(p, 1.5), p[0].grad, p[1].grad),
    "infinite": lambda torch, u, p: (p[0].grad.fill_(float("inf")), u.clip_grad_norm_(p, 1.0, error_if_nonfinite=True)),
    "infinite, allowed": lambda torch, u, p: (p[0].grad.fill_(float("inf")), u.clip_grad_norm_(p, 1.0))[1],
    "old name": lambda torch, u, p: u.clip_grad_norm(p, 1.0),
    "in two steps": lambda torch, u, p: (u.get_total_norm([q.grad for q in p]),
                                         u.clip_grads_with_norm_(p, 2.0, torch.tensor(4.0)), p[1].grad),
}


@pytest.mark.parametrize("case", CLIP)
def test_clipping(case):
    agree_in_words(lambda torch: CLIP[case](torch, torch.nn.utils, with_grads(torch, [3.0, -4.0], [12.0, 0.0, 1.0])),
                   tolerance=1e-6)


def test_vectors():
    def program(torch):
        m = dense(torch)
        v = torch.nn.utils.parameters_to_vector(m.parameters())
        torch.nn.utils.vector_to_parameters(torch.arange(12.0), m.parameters())
        v2 = torch.nn.utils.parameters_to_vector(m.parameters())
        return v, v2, m.weight, m.weight.is_leaf

    agree_in_words(program)
    agree_in_words(lambda torch: torch.nn.utils.parameters_to_vector([]), text=False)
    agree_in_words(lambda torch: torch.nn.utils.vector_to_parameters(3, []))
    agree_in_words(lambda torch: torch.nn.utils.vector_to_parameters(torch.ones(2), dense(torch).parameters()), text=False)


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
        m = dense(torch)
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
        m = dense(torch)
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
    "no such tensor": lambda torch, P: P.register_parametrization(dense(torch), "foo", kinds(torch)["Symmetric"]()),
    "remove none": lambda torch, P: P.remove_parametrizations(dense(torch), "weight"),
    "set one way": lambda torch,
    P: setattr(P.register_parametrization(dense(torch), "weight", kinds(torch)["OneWay"]()),
                                            "weight", torch.ones(3, 3)),
    "leave two": lambda torch, P: P.remove_parametrizations(
        P.register_parametrization(dense(torch), "weight", kinds(torch)["Two"]()), "weight", leave_parametrized=False),
    "pickle": lambda torch,
    P: pickle.dumps(P.register_parametrization(dense(torch), "weight", kinds(torch)["Symmetric"]())),
    "unsafe": lambda torch,
    P: P.register_parametrization(dense(torch), "weight", kinds(torch)["Row"](), unsafe=True).weight.shape,
    "original stays": lambda torch, P: P.remove_parametrizations(
        P.register_parametrization(dense(torch), "weight", kinds(torch)["OneWay"]()), "weight",
        leave_parametrized=False).weight,
    "two removed": lambda torch, P: P.remove_parametrizations(
        P.register_parametrization(dense(torch), "weight", kinds(torch)["Two"]()), "weight").weight,
    "transfer": lambda torch, P: P.transfer_parametrizations_and_params(
        P.register_parametrization(dense(torch), "weight", kinds(torch)["Symmetric"]()), dense(torch)).weight,
}


@pytest.mark.parametrize("case", PARAMETRIZE_ERRORS)
def test_parametrize_edges(case):
    agree_in_words(lambda torch: PARAMETRIZE_ERRORS[case](torch, torch.nn.utils.parametrize))


def test_state_dict_round_trip_of_parametrized_modules():
    def program(torch):
        make = lambda: torch.nn.utils.parametrizations.weight_norm(dense(torch))
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
    "vector": lambda torch, Z: Z.orthogonal(dense(torch), "bias"),
    "map": lambda torch, Z: Z.orthogonal(dense(torch), orthogonal_map="foo"),
    "name": lambda torch, Z: Z.orthogonal(dense(torch), "zz"),
    "assign without base": lambda torch,
    Z: setattr(Z.orthogonal(dense(torch), use_trivialization=False), "weight", torch.eye(3)),
    "assign a wrong shape": lambda torch, Z: setattr(Z.orthogonal(dense(torch, 3, 5)), "weight", torch.eye(3)),
    "assign": lambda torch, Z: (lambda m: (setattr(m, "weight", torch.eye(3)), m.weight))(Z.orthogonal(dense(torch))),
    "spectral name": lambda torch, Z: Z.spectral_norm(dense(torch), "zz"),
    "spectral iterations": lambda torch, Z: Z.spectral_norm(dense(torch), n_power_iterations=0),
    "spectral dim": lambda torch, Z: Z.spectral_norm(dense(torch), dim=5),
    "spectral of a vector": lambda torch,
    Z: (lambda m: (m.bias.data.fill_(2), Z.spectral_norm(m, "bias").bias)[1])(dense(torch)),
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
    agree_in_words(lambda torch: torch.nn.utils.remove_weight_norm(dense(torch)))
    agree_in_words(lambda torch: torch.nn.utils.remove_spectral_norm(dense(torch)))
    agree_in_words(lambda torch: (lambda m: (m(torch.ones(1, 3)), list(torch.nn.utils.remove_spectral_norm(m).state_dict()),
                                             m.weight,
                                             m._state_dict_hooks,
                                             m._forward_pre_hooks)[1:])(torch.nn.utils.spectral_norm(dense(torch))),
                   tolerance=1e-5)
    agree_in_words(lambda torch: torch.nn.utils.weight_norm(torch.nn.utils.weight_norm(dense(torch))), text=False, warned=False)


# -------------------------------------------------------------------------------------------------------------- pruning
PRUNE = {
    "l1": lambda torch, R, m: R.l1_unstructured(m, "weight", 4),
    "l1 fraction": lambda torch, R, m: R.l1_unstructured(m, "weight", 0.3),
    "l1 by scores": lambda torch, R,
    m: R.l1_unstructured(m, "weight", 2, importance_scores=torch.arange(9.0).reshape(3, 3)),
    "random": lambda torch, R, m: R.random_unstructured(m, "weight", 0.5),
    "twice": lambda torch, R, m: R.random_unstructured(R.l1_unstructured(m, "weight", 4), "weight", 0.5),
    "rows": lambda torch, R, m: R.ln_structured(m, "weight", 1, 2, 0),
    "columns, then entries": lambda torch, R, m: R.l1_unstructured(R.ln_structured(m, "weight", 1, 1, 1), "weight", 2),
    "entries, then rows": lambda torch, R, m: R.ln_structured(R.l1_unstructured(m, "weight", 2), "weight", 1, 2, -1),
    "random rows": lambda torch, R, m: R.random_structured(m, "weight", 1, 0),
    "identity": lambda torch, R, m: R.identity(m, "weight"),
    "mask": lambda torch, R, m: R.custom_from_mask(m, "weight", torch.eye(3)),
    "global": lambda torch, R, m: R.global_unstructured([(m, "weight"), (m, "bias")], R.L1Unstructured, amount=5),
    "too much": lambda torch, R, m: R.l1_unstructured(m, "weight", 50),
    "more than all": lambda torch, R, m: R.l1_unstructured(m, "weight", 1.5),
    "negative": lambda torch, R, m: R.l1_unstructured(m, "weight", -1),
    "text": lambda torch, R, m: R.l1_unstructured(m, "weight", "a"),
    "name": lambda torch, R, m: R.l1_unstructured(m, "zz", 1),
    "remove none": lambda torch, R, m: R.remove(m, "weight"),
    "dim": lambda torch, R, m: R.random_structured(m, "weight", 1, 5),
    "vector": lambda torch, R, m: R.ln_structured(m, "bias", 1, 2, 0),
    "scores": lambda torch, R, m: R.l1_unstructured(m, "weight", 2, importance_scores=torch.ones(2, 2)),
    "global of a number": lambda torch, R, m: R.global_unstructured(3, R.L1Unstructured),
    "global structured": lambda torch, R, m: R.global_unstructured([(m, "weight")], R.LnStructured, amount=1, n=2),
}


@pytest.mark.parametrize("case", PRUNE)
def test_pruning(case):
    def program(torch):
        R = torch.nn.utils.prune
        m = dense(torch)
        torch.manual_seed(5)
        PRUNE[case](torch, R, m)
        out = m(torch.ones(1, 3))
        out.sum().backward()
        state, pruned = dict(m.state_dict()), R.is_pruned(m)
        grad = m.weight_orig.grad if hasattr(m, "weight_orig") else None
        R.remove(m, "weight")
        return m, state, out, grad, pruned, dict(m.state_dict()), type(m.weight), R.is_pruned(dense(torch))

    agree_in_words(program, tolerance=1e-6)


def test_a_failed_pruning_leaves_the_module_as_it_was():
    m = dense(flambeau)
    before = m.weight
    with pytest.raises(ValueError, match="amount=50"):
        flambeau.nn.utils.prune.l1_unstructured(m, "weight", 50)
    assert m.weight is before and list(m.state_dict()) == ["bias", "weight"] and not m._forward_pre_hooks


# ------------------------------------------------------------------------------------------------------------ sequences
def steps(torch):
    return torch.arange(24.0).reshape(3, 4, 2)


PACK = {
    "sorted": lambda torch, N, x: N.pack_padded_sequence(x, [3, 2, 2, 1]),
    "batch first": lambda torch, N, x: N.pack_padded_sequence(x.transpose(0, 1), [3, 2, 2, 1], batch_first=True),
    "unsorted": lambda torch, N, x: N.pack_padded_sequence(x, [1, 2, 3, 1], enforce_sorted=False),
    "tensor of floats": lambda torch, N, x: N.pack_padded_sequence(x, torch.tensor([3.0, 2, 2, 1])),
    "refused": lambda torch, N, x: N.pack_padded_sequence(x, [1, 2, 3, 1]),
    "zero": lambda torch, N, x: N.pack_padded_sequence(x, [3, 2, 1, 0]),
    "too few": lambda torch, N, x: N.pack_padded_sequence(x, [3, 2, 1]),
    "matrix": lambda torch, N, x: N.pack_padded_sequence(x, torch.tensor([[3, 2, 2, 1]])),
    "empty": lambda torch, N, x: N.pack_padded_sequence(x[:0], []),
    "too long": lambda torch, N, x: N.pack_padded_sequence(x, [5, 2, 2, 1]),
    "list": lambda torch, N, x: N.pack_sequence([torch.ones(1), torch.ones(2)], enforce_sorted=False),
    "padded": lambda torch, N, x: N.pad_packed_sequence(N.pack_padded_sequence(x, [3, 2, 2, 1])),
    "padded unsorted": lambda torch, N,
    x: N.pad_packed_sequence(N.pack_padded_sequence(x, [1, 2, 3, 1], enforce_sorted=False)),
    "padded longer": lambda torch, N, x: N.pad_packed_sequence(N.pack_padded_sequence(x, [3, 2, 2, 1]), True, -1, 5),
    "padded shorter": lambda torch, N,
    x: N.pad_packed_sequence(N.pack_padded_sequence(x, [3, 2, 2, 1]), total_length=2),
    "pad": lambda torch, N, x: N.pad_sequence([torch.ones(2, 2), torch.ones(3, 2)]),
    "pad left": lambda torch, N, x: N.pad_sequence([torch.ones(2), torch.ones(3)], True, 5, "left"),
    "pad none": lambda torch, N, x: N.pad_sequence([]),
    "pad a number": lambda torch, N, x: N.pad_sequence(3),
    "pad unequal": lambda torch, N, x: N.pad_sequence([torch.ones(2, 3), torch.ones(2, 2)]),
    "pad nowhere": lambda torch, N, x: N.pad_sequence([torch.ones(2)], padding_side="x"),
    "pad a tensor": lambda torch, N, x: N.pad_sequence(torch.ones(2, 3)),
    "unpad": lambda torch, N, x: N.unpad_sequence(torch.ones(3, 2), torch.tensor([1, 2])),
    "unpack": lambda torch, N,
    x: N.unpack_sequence(N.pack_sequence([torch.ones(1), torch.ones(2)], enforce_sorted=False)),
    "invert": lambda torch, N, x: (N.invert_permutation(torch.tensor([2, 0, 1])), N.invert_permutation(None)),
    "repr": lambda torch, N, x: repr(N.pack_padded_sequence(x, [3, 2, 2, 1])),
    "made by hand": lambda torch, N, x: N.PackedSequence(torch.ones(3), torch.tensor([2, 1])),
    "made badly": lambda torch, N, x: N.PackedSequence(torch.ones(3)),
    "converted": lambda torch, N, x: (lambda p: (p.double(), p.to("cpu") is p, p.is_cuda, p.float() is p))(
        N.pack_padded_sequence(x, [1, 2, 3, 1], enforce_sorted=False)),
}


@pytest.mark.parametrize("case", PACK)
def test_sequences(case):
    agree_in_words(lambda torch: PACK[case](torch, torch.nn.utils.rnn, steps(torch)))


def test_gradients_pass_through_packing():
    def program(torch):
        N = torch.nn.utils.rnn
        x = steps(torch).requires_grad_()
        packed = N.pack_padded_sequence(x, [1, 2, 3, 1], enforce_sorted=False)
        padded, _ = N.pad_packed_sequence(packed._replace(data=packed.data * 2), padding_value=7.0)
        (padded * steps(torch)).sum().backward()
        return x.grad, padded

    agree_in_words(program)


# --------------------------------------------------------------------------------------------- fusion, functional calls
def test_fusion_folds_the_norm_into_the_layer():
    def program(torch):
        torch.manual_seed(0)
        F = torch.nn.utils.fusion
        mean, var, w, b = (torch.rand(4) for _ in range(4))
        conv = torch.rand(4, 3, 2, 2)
        plain = F.fuse_conv_bn_weights(conv, None, mean, var, 1e-5, w, b)
        transposed = F.fuse_conv_bn_weights(torch.rand(3, 4, 2), torch.rand(4), mean, var, 1e-5, None, None, True)
        return plain, transposed, F.fuse_linear_bn_weights(torch.rand(4, 5), torch.rand(4), mean, var, 1e-5, w, b)

    agree_in_words(program, tolerance=1e-6)


def functional_call(torch):
    if torch is flambeau:
        return flambeau.nn.utils.stateless._functional_call
    return torch.func.functional_call


ONE = [1.0, 0.0, 0.0]  # of the random weights: in a sum of several, PyTorch's last bit depends on the CPU
CALLS = {
    "weight": lambda torch, F: F(dense(torch), {"weight": torch.ones(3, 3)}, torch.ones(1, 3)),
    "unknown": lambda torch, F: F(dense(torch), {"zz": torch.ones(1)}, torch.tensor(ONE)),
    "unknown deep": lambda torch, F: F(dense(torch), {"a.b": torch.ones(1)}, torch.ones(3)),
    "a number": lambda torch, F: F(dense(torch), {"weight": 3}, torch.ones(3)),
    "strict": lambda torch, F: F(dense(torch), {"weight": torch.ones(3, 3)}, torch.ones(3), strict=True),
    "strict and more": lambda torch,
    F: F(dense(torch), {"weight": torch.ones(3, 3), "a.b": torch.ones(1)}, torch.ones(3), strict=True),
    "no dictionary": lambda torch, F: F(dense(torch), 3, torch.ones(3)),
    "several": lambda torch,
    F: F(dense(torch), ({"weight": torch.ones(3, 3)}, {"bias": torch.ones(3)}), torch.ones(1, 3)),
    "twice the same": lambda torch,
    F: F(dense(torch), ({"bias": torch.ones(3)}, {"bias": torch.ones(3)}), torch.ones(1, 3)),
}


@pytest.mark.parametrize("case", CALLS)
def test_functional_call(case):
    agree_in_words(lambda torch: CALLS[case](torch, functional_call(torch)))


def test_functional_call_gradients_ties_and_buffers():
    def program(torch):
        class Tied(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.a = torch.nn.Parameter(torch.ones(2))
                self.b = self.a
                self.register_buffer("count", torch.zeros(1))

            def forward(self, x):
                self.count.add_(1)
                return (x * self.a + self.b).sum()

        F, m = functional_call(torch), Tied()
        w = torch.full((2,), 3.0, requires_grad=True)
        count = torch.zeros(1)
        out = F(m, {"a": w, "count": count}, torch.ones(2))
        out.backward()
        untied = F(m, {"a": w}, torch.ones(2), tie_weights=False)
        try:
            F(m, {"zz": w, "a": w}, torch.ones(2))
        except AttributeError:
            pass
        return out, w.grad, m.count, count, untied, m.a, m.a.grad, list(m.state_dict())

    agree_in_words(program)


def test_skip_init():
    agree_in_words(lambda torch: torch.nn.utils.skip_init(int))
    agree_in_words(lambda torch: torch.nn.utils.skip_init(torch.nn.Identity), text=False)
    m = flambeau.nn.utils.skip_init(layers(flambeau)[0], 2, 3)
    assert m.weight.shape == (3, 2) and m.weight.device.type == "cpu"


# -------------------------------------------------------------------------------------------------------- checkpointing
def run(torch, checkpoint, **options):
    """Losses and gradients of a small model whose middle is checkpointed, with random numbers in it."""
    torch.manual_seed(0)
    w = torch.nn.Parameter(torch.arange(4.0))
    x = torch.ones(4, requires_grad=True)
    runs = []

    def part(t, scale=2.0):
        runs.append(1)
        return (t * w).sin() * torch.rand(4) + (t * scale).exp()

    y = checkpoint(part, x * 1, **options) if checkpoint else part(x * 1)
    z = (y * torch.rand(4)).sum()
    z.backward()
    return z, w.grad, x.grad, torch.rand(2), len(runs)


@pytest.mark.parametrize("options", [{"use_reentrant": True}, {"use_reentrant": False},
                                     {"use_reentrant": False, "preserve_rng_state": False},
                                     {"use_reentrant": True, "preserve_rng_state": False},
                                     {"use_reentrant": False, "determinism_check": "none"},
                                     {"use_reentrant": False, "scale": 3.0},
                                     {"use_reentrant": False, "early_stop": False}], ids=str)
def test_checkpoint(options):
    agree_in_words(lambda torch: run(torch, torch.utils.checkpoint.checkpoint, **options), tolerance=1e-5)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_gradients_are_the_same(reentrant):
    plain = run(flambeau, None)
    checkpointed = run(flambeau, flambeau.utils.checkpoint.checkpoint, use_reentrant=reentrant)
    for a, b in zip(plain[:4], checkpointed[:4]):
        assert a.tolist() == b.tolist()
    assert (plain[4], checkpointed[4]) == (1, 2)


CHECKPOINT = {
    "no choice": lambda torch, C, x: C.checkpoint(torch.sin, x).grad_fn.name(),
    "no gradient": lambda torch, C, x: C.checkpoint(torch.sin, torch.ones(2), use_reentrant=True).requires_grad,
    "keyword": lambda torch, C, x: C.checkpoint(torch.sin, x, use_reentrant=True, a=3),
    "context": lambda torch, C, x: C.checkpoint(torch.sin, x, use_reentrant=True, context_fn=lambda: 3),
    "check": lambda torch, C, x: C.checkpoint(torch.sin, x, use_reentrant=False, determinism_check="foo"),
    "grad": lambda torch, C, x: torch.autograd.grad(C.checkpoint(torch.sin, x, use_reentrant=True).sum(), x),
    "grad without reentry": lambda torch, C,
    x: torch.autograd.grad(C.checkpoint(torch.sin, x, use_reentrant=False).sum(), x),
    "nothing to do": lambda torch, C, x: C.checkpoint(lambda t: t.detach(), x, use_reentrant=True).sum().backward(),
    "saved": lambda torch, C, x: (lambda y: (y.grad_fn._saved_self, y.grad_fn._saved_self, y.sum().backward(), x.grad))(
        C.checkpoint(torch.sin, x, use_reentrant=False)),
    "kept graph": lambda torch, C, x: (lambda y: (y.backward(retain_graph=True), y.backward(), x.grad))(
        C.checkpoint(torch.sin, x, use_reentrant=False).sum()),
    "second derivative": lambda torch, C, x: torch.autograd.grad(torch.autograd.grad(
        C.checkpoint(lambda t: t.sin().exp(), x, use_reentrant=False).sum(), x, create_graph=True)[0].sum(), x),
    "in no_grad": lambda torch, C, x: torch.no_grad()(lambda: C.checkpoint(torch.sin, x, use_reentrant=False))(),
    "sequential": lambda torch, C,
    x: C.checkpoint_sequential([torch.sin, torch.exp, torch.cos], 2, x, use_reentrant=False),
    "sequential keyword": lambda torch, C, x: C.checkpoint_sequential([torch.sin], 1, x, use_reentrant=False, a=1),
    "device": lambda torch, C, x: C.DefaultDeviceType.get_device_type() in ("cpu", "cuda"),
}


@pytest.mark.parametrize("case", CHECKPOINT)
def test_checkpoint_edges(case):
    agree_in_words(lambda torch: CHECKPOINT[case](torch, torch.utils.checkpoint, torch.ones(2, requires_grad=True)),
                   tolerance=1e-6)


@pytest.mark.parametrize("again, words", [
    (lambda torch, y: y.sin(), "A different number of tensors was saved"),
    (lambda torch, y: torch.cat([y, y]).exp().cos()[:2], "have different metadata"),
    (lambda torch, y: y.sin().sin().exp().cos().sin(), "trying to save more tensors")])
def test_a_different_second_run_is_noticed(again, words):
    C, runs = flambeau.utils.checkpoint, []

    def part(t):
        runs.append(1)
        y = t.sin()
        return y.exp().cos() if len(runs) == 1 else again(flambeau, y)

    x = flambeau.ones(2, requires_grad=True)
    with C.set_checkpoint_early_stop(False):
        y = C.checkpoint(part, x, use_reentrant=False)
    with pytest.raises(C.CheckpointError, match=words):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [True, False])
def test_nested_checkpoints(reentrant):
    def program(torch):
        C = torch.utils.checkpoint
        runs = []

        def inner(t):
            runs.append("inner")
            return t.sin().exp()

        def outer(t):
            runs.append("outer")
            return C.checkpoint(inner, t.cos() * 2, use_reentrant=reentrant).tanh()

        x = torch.arange(3.0).requires_grad_()
        y = C.checkpoint(outer, x * 1.5, use_reentrant=reentrant)
        y.sum().backward()
        return y, x.grad, runs

    agree_in_words(program, tolerance=1e-5)


def test_contexts_modules_and_memory():
    import contextlib
    import gc
    import weakref
    C = flambeau.utils.checkpoint
    said = []

    @contextlib.contextmanager
    def note(what):
        said.append(what)
        yield

    m = dense(flambeau)
    x = flambeau.ones(1, 3, requires_grad=True)
    inner = []

    def part(t):
        h = (m(t) * 2).exp()
        inner.append(weakref.ref(h))
        return h.sin()

    y = C.checkpoint(part, x, use_reentrant=False, context_fn=lambda: (note("forward"), note("again")))
    gc.collect()
    assert inner[0]() is None  # not kept for backward
    y.sum().backward()
    assert said == ["forward", "again"] and m.weight.grad is not None
    node = weakref.ref(y)
    del y
    gc.disable()
    try:
        assert node() is None
    finally:
        gc.enable()


def test_names_that_are_not_there_say_so():
    C = flambeau.utils.checkpoint
    with pytest.raises(NotImplementedError, match="selective"):
        C.create_selective_checkpoint_contexts([])
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        flambeau.utils.nonsense


def test_swap_tensors():
    def program(torch):
        a, b = torch.nn.Parameter(torch.ones(2)), torch.zeros(3)
        torch.utils.swap_tensors(a, b)
        return a, b, type(a), type(b)

    agree_in_words(program)
