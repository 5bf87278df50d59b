"""embedding, embedding_bag, one_hot, and the layers."""

import numpy as np
import pytest
from compare import agree_in_words
from layer_cases import both_refuse, derivatives_agree, integers, numbers

W = numbers(7, 3)
INDEX = integers(7, 2, 4)


@pytest.mark.parametrize("kwargs", [{}, {"padding_idx": 2}, {"padding_idx": -1}, {"scale_grad_by_freq": True},
                                    {"padding_idx": 0, "scale_grad_by_freq": True}], ids=str)
@pytest.mark.parametrize("shape", [(), (6,), (2, 4), (2, 3, 2), (0,)])
def test_embedding(shape, kwargs):
    derivatives_agree(lambda torch, i, w, **k: torch.nn.functional.embedding(i, w, **k), integers(7, *shape), W,
                      second=not kwargs.get("scale_grad_by_freq"), **kwargs)


def test_int32_indices_and_wide_rows():
    derivatives_agree(lambda torch, i, w: torch.nn.functional.embedding(i.to(torch.int32), w), integers(50, 400),
                      numbers(50, 64, dtype=np.float32), tolerance=1e-5)


def test_an_infinite_gradient_stays_in_its_row():
    def program(torch):
        w = torch.ones(3, 2, requires_grad=True)
        torch.nn.functional.embedding(torch.tensor([0, 1]), w).backward(torch.tensor([[1.0, 1.0], [float("inf"), 1.0]]))
        return w.grad

    agree_in_words(program)


def test_max_norm_shrinks_used_rows_in_place():
    def program(torch):
        torch.manual_seed(0)
        layer = torch.nn.Embedding(6, 3, max_norm=1.0)
        out = layer(torch.tensor([[1, 2], [2, 5]]))
        return out, layer.weight, layer

    agree_in_words(program, tolerance=1e-6)


MODES = ["sum", "mean", "max"]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kwargs", [{}, {"padding_idx": 2}, {"include_last_offset": True}], ids=str)
def test_bags_by_offsets(mode, kwargs):
    offsets = [0, 3, 3, 5] + ([8] if kwargs.get("include_last_offset") else [])
    derivatives_agree(lambda torch, i, w, **k: torch.nn.functional.embedding_bag(i, w, torch.tensor(offsets), mode=mode, **k),
                      INDEX.reshape(-1), W, **kwargs)


@pytest.mark.parametrize("mode", MODES)
def test_bags_of_a_matrix(mode):
    derivatives_agree(lambda torch, i, w: torch.nn.functional.embedding_bag(i, w, mode=mode), INDEX, W)


def test_bags_with_weights():
    derivatives_agree(lambda torch, i, w, s: torch.nn.functional.embedding_bag(i, w, mode="sum", per_sample_weights=s,
                                                                              padding_idx=1), INDEX, W, numbers(2, 4))


def test_bag_details():
    def program(torch):
        torch.manual_seed(0)
        w = torch.randn(5, 2)
        return [torch.embedding_bag(w, torch.tensor([1, 2, 4, 4]), torch.tensor([0, 2, 2]), mode=m)[0] for m in range(3)]

    agree_in_words(program, tolerance=1e-6)


@pytest.mark.parametrize("call", [
    lambda t: t.nn.functional.one_hot(t.tensor([[0, 2], [1, 1]])),
    lambda t: t.nn.functional.one_hot(t.tensor([0, 2]), 5), lambda t: t.nn.functional.one_hot(t.tensor(3)),
    lambda t: t.nn.functional.one_hot(t.tensor([0, -1])), lambda t: t.nn.functional.one_hot(t.tensor([3]), 2),
    lambda t: t.nn.functional.one_hot(t.tensor([1.0])),
    lambda t: t.nn.functional.one_hot(t.tensor([], dtype=t.int64), 3)])
def test_one_hot(call):
    agree_in_words(call, text=False)


@pytest.mark.parametrize("text", ["Embedding(6, 3)", "Embedding(6, 3, padding_idx=1)", "Embedding(6, 3, padding_idx=-1)",
                                  "Embedding(6, 3, max_norm=2.0, norm_type=1.0, scale_grad_by_freq=True, sparse=True)",
                                  "EmbeddingBag(6, 3)", "EmbeddingBag(6, 3, mode='sum', padding_idx=0)",
                                  "Embedding.from_pretrained(torch.eye(6, 3))",
                                  "EmbeddingBag.from_pretrained(torch.eye(6, 3), freeze=False, mode='max')"])
def test_layers(text):
    def program(torch):
        torch.manual_seed(4)
        layer = eval(f"torch.nn.{text}", {"torch": torch})
        return layer, layer.state_dict(), layer.weight.requires_grad, layer(torch.tensor([[0, 1], [5, 1]]))

    agree_in_words(program, tolerance=1e-6)


@pytest.mark.parametrize("call", [
    lambda t: t.nn.functional.embedding(t.tensor([7]), t.ones(7, 3)),
    lambda t: t.nn.functional.embedding(t.tensor([-1]), t.ones(7, 3)),
    lambda t: t.nn.functional.embedding(t.tensor([1.0]), t.ones(7, 3)),
    lambda t: t.nn.functional.embedding(t.tensor([1]), t.ones(7, 3), padding_idx=7),
    lambda t: t.nn.functional.embedding(t.tensor([1]), t.ones(7)),
    lambda t: t.nn.functional.embedding_bag(t.tensor([1]), t.ones(7, 3)),
    lambda t: t.nn.functional.embedding_bag(t.tensor([[1]]), t.ones(7, 3), t.tensor([0])),
    lambda t: t.nn.functional.embedding_bag(t.tensor([1, 2]), t.ones(7, 3), t.tensor([1])),
    lambda t: t.nn.functional.embedding_bag(t.tensor([1, 2]), t.ones(7, 3), t.tensor([0, 3])),
    lambda t: t.nn.functional.embedding_bag(t.tensor([[1]]), t.ones(7, 3), mode="min"),
    lambda t: t.nn.functional.embedding_bag(t.tensor([[1]]), t.ones(7, 3), mode="max", sparse=True),
    lambda t: t.nn.functional.embedding_bag(t.tensor([[1]]), t.ones(7, 3), per_sample_weights=t.ones(1, 1)),
    lambda t: t.nn.Embedding(3, 2, padding_idx=3), lambda t: t.nn.Embedding.from_pretrained(t.ones(3)),
])
def test_refusals(call):
    both_refuse(call)
