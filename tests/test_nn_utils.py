"""nn.utils: clipping, vectors, pruning, sequences, fusion, functional calls; against PyTorch."""


import pytest
import torch.nn.utils.prune  # noqa: F401 (PyTorch's own is not imported by itself)
from compare import agree_in_words
from layer_cases import dense, layers

import flambeau


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
        m = dense(torch, 3, 3)
        v = torch.nn.utils.parameters_to_vector(m.parameters())
        torch.nn.utils.vector_to_parameters(torch.arange(12.0), m.parameters())
        v2 = torch.nn.utils.parameters_to_vector(m.parameters())
        return v, v2, m.weight, m.weight.is_leaf

    agree_in_words(program)
    agree_in_words(lambda torch: torch.nn.utils.parameters_to_vector([]), text=False)
    agree_in_words(lambda torch: torch.nn.utils.vector_to_parameters(3, []))
    agree_in_words(lambda torch: torch.nn.utils.vector_to_parameters(torch.ones(2), dense(torch, 3, 3).parameters()),
                   text=False)


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
        m = dense(torch, 3, 3)
        torch.manual_seed(5)
        PRUNE[case](torch, R, m)
        out = m(torch.ones(1, 3))
        out.sum().backward()
        state, pruned = dict(m.state_dict()), R.is_pruned(m)
        grad = m.weight_orig.grad if hasattr(m, "weight_orig") else None
        R.remove(m, "weight")
        return m, state, out, grad, pruned, dict(m.state_dict()), type(m.weight), R.is_pruned(dense(torch, 3, 3))

    agree_in_words(program, tolerance=1e-6)


def test_a_failed_pruning_leaves_the_module_as_it_was():
    m = dense(flambeau, 3, 3)
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
    "weight": lambda torch, F: F(dense(torch, 3, 3), {"weight": torch.ones(3, 3)}, torch.ones(1, 3)),
    "unknown": lambda torch, F: F(dense(torch, 3, 3), {"zz": torch.ones(1)}, torch.tensor(ONE)),
    "unknown deep": lambda torch, F: F(dense(torch, 3, 3), {"a.b": torch.ones(1)}, torch.ones(3)),
    "a number": lambda torch, F: F(dense(torch, 3, 3), {"weight": 3}, torch.ones(3)),
    "strict": lambda torch, F: F(dense(torch, 3, 3), {"weight": torch.ones(3, 3)}, torch.ones(3), strict=True),
    "strict and more": lambda torch,
    F: F(dense(torch, 3, 3), {"weight": torch.ones(3, 3), "a.b": torch.ones(1)}, torch.ones(3), strict=True),
    "no dictionary": lambda torch, F: F(dense(torch, 3, 3), 3, torch.ones(3)),
    "several": lambda torch,
    F: F(dense(torch, 3, 3), ({"weight": torch.ones(3, 3)}, {"bias": torch.ones(3)}), torch.ones(1, 3)),
    "twice the same": lambda torch,
    F: F(dense(torch, 3, 3), ({"bias": torch.ones(3)}, {"bias": torch.ones(3)}), torch.ones(1, 3)),
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
            refused = F(m, {"zz": w, "a": w}, torch.ones(2)) is None
        except AttributeError:
            refused = True
        return refused, out, w.grad, m.count, count, untied, m.a, m.a.grad, list(m.state_dict())

    agree_in_words(program)


def test_skip_init():
    agree_in_words(lambda torch: torch.nn.utils.skip_init(int))
    agree_in_words(lambda torch: torch.nn.utils.skip_init(torch.nn.Identity), text=False)
    m = flambeau.nn.utils.skip_init(layers(flambeau)[0], 2, 3)
    assert m.weight.shape == (3, 2) and m.weight.device.type == "cpu"


def test_names_that_are_not_there_say_so():
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        flambeau.utils.nonsense


def test_swap_tensors():
    def program(torch):
        a, b = torch.nn.Parameter(torch.ones(2)), torch.zeros(3)
        torch.utils.swap_tensors(a, b)
        return a, b, type(a), type(b)

    agree_in_words(program)
