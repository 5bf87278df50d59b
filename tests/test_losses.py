"""Losses: values, derivatives of first and second order, reductions, weights, refusals, layers, CTC."""

import numpy as np
import pytest
from compare import MODULES, agree_in_words
from layer_cases import both_refuse, derivatives_agree, integers, numbers

X, Y = numbers(5, 4), numbers(5, 4, seed=1)
P, Q = numbers(5, 4, low=0.1).clip(0.05, 0.95), numbers(5, 4, seed=2, low=0.1).clip(0.05, 0.95)
SIGNS = np.sign(numbers(5, 4, seed=3))
T = integers(4, 5)
PAIRS = [
    ("l1_loss", (X, Y), {}), ("mse_loss", (X, Y), {}), ("mse_loss", (X, Y), {"weight": P}),
    ("smooth_l1_loss", (X, Y), {"beta": 0.6}), ("smooth_l1_loss", (X, Y), {"beta": 0.0}),
    ("huber_loss", (X, Y), {"delta": 0.7}), ("soft_margin_loss", (X, SIGNS.astype(np.int64)), {}),
    ("kl_div", (X, P), {}), ("kl_div", (X, Y), {"log_target": True}), ("poisson_nll_loss", (X, P), {}),
    ("poisson_nll_loss", (P, 3 * P), {"log_input": False, "full": True}), ("gaussian_nll_loss", (X, Y, P), {}),
    ("gaussian_nll_loss", (X, Y, P), {"full": True}), ("hinge_embedding_loss", (X, SIGNS.astype(np.int64)), {}),
    ("binary_cross_entropy", (P, Q), {}), ("binary_cross_entropy", (P, Q), {"weight": P}),
    ("binary_cross_entropy_with_logits", (X, Q), {}),
    ("binary_cross_entropy_with_logits", (X, Q), {"weight": P, "pos_weight": np.array([1.0, 2.0, 0.5, 3.0])}),
    ("cosine_embedding_loss", (X, Y, SIGNS[:, 0].astype(np.int64)), {"margin": 0.1}),
    ("margin_ranking_loss", (X[:, 0], Y[:, 0], SIGNS[:, 0]), {"margin": 0.1}),
    ("multi_margin_loss", (X, T), {}), ("multi_margin_loss", (X, T), {"p": 2, "margin": 0.5, "weight": P[0]}),
    ("multilabel_margin_loss", (X, np.array([[1, 3, -1, 0]] * 5)), {}),
    ("multilabel_soft_margin_loss", (X, (Y > 0).astype(np.int64)), {"weight": P[0]}),
    ("triplet_margin_loss", (X, Y, Q), {"swap": True}), ("triplet_margin_with_distance_loss", (X, Y, Q), {}),
    ("nll_loss", (X, T), {}), ("nll_loss", (X, T), {"weight": P[0], "ignore_index": 2}),
    ("nll_loss", (X[0], np.array(T[0])), {}),
    ("nll_loss", (numbers(2, 3, 4), integers(3, 2, 4)), {}),
    ("nll_loss", (numbers(2, 3, 4, 2), integers(3, 2, 4, 2)), {"ignore_index": 1}),
    ("cross_entropy", (X, T), {}), ("cross_entropy", (X, T), {"ignore_index": 1}), ("cross_entropy", (X, Q), {}),
    ("cross_entropy", (X, T), {"label_smoothing": 0.2}), ("cross_entropy", (X[0], np.array(T[0])), {}),
    ("cross_entropy", (X, T), {"label_smoothing": 0.2, "weight": P[0], "ignore_index": 0}),
    ("cross_entropy", (X, Q), {"label_smoothing": 0.1, "weight": P[0]}),
    ("cross_entropy", (numbers(2, 3, 4, 2), integers(3, 2, 4, 2)), {"ignore_index": 1}),
]
ONLY_ONCE = ("multi_margin_loss", "multilabel_margin_loss")  # PyTorch has no second derivative of these
COMPOSED = ("kl_div", "gaussian_nll_loss", "hinge_embedding_loss", "poisson_nll_loss", "multilabel_soft_margin_loss",
            "cosine_embedding_loss", "triplet_margin_loss", "triplet_margin_with_distance_loss", "margin_ranking_loss")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("reduction", ["mean", "sum", "none"])
@pytest.mark.parametrize("name, args, kwargs", PAIRS, ids=[f"{i}-{p[0]}" for i, p in enumerate(PAIRS)])
def test_values_and_derivatives(name, args, kwargs, reduction):
    derivatives_agree(lambda torch, *a, **k: getattr(torch.nn.functional, name)(*a, reduction=reduction, **k), *args,
                      second=name not in ONLY_ONCE, node=name not in COMPOSED and not kwargs.get("label_smoothing") and (
                          args[0].ndim != 3 and args[1] is not Q), **kwargs)


@pytest.mark.parametrize("rows, classes", [(3, 5), (300, 40), (40, 3000)])
def test_cross_entropy_of_all_sizes_in_single_precision(rows, classes):
    derivatives_agree(lambda torch, x, t: torch.nn.functional.cross_entropy(x * 5, t), numbers(rows, classes, dtype=np.float32),
                      integers(classes, rows), tolerance=2e-6)


def test_cross_entropy_is_one_node_that_looks_like_two():
    def program(torch):
        x = torch.randn(4, 3, requires_grad=True)
        loss = torch.nn.functional.cross_entropy(x * 2, torch.tensor([0, 1, 2, 0]))
        node = loss.grad_fn
        names = [node.name()]
        while node.next_functions:
            node = node.next_functions[0][0]
            names.append(type(node).__name__)
        return names

    agree_in_words(program)


def test_all_ignored_gives_nan_as_mean_and_zero_as_sum():
    def program(torch):
        x, t = torch.zeros(2, 3, requires_grad=True), torch.tensor([-100, -100])
        return [torch.nn.functional.cross_entropy(x, t, reduction=r).tolist() for r in ("mean", "sum", "none")]

    agree_in_words(program)


def test_changed_target_is_noticed():
    def program(torch):
        x, t = torch.zeros(2, 3, requires_grad=True), torch.tensor([0, 1])
        loss = torch.nn.functional.cross_entropy(x, t)
        t.add_(1)
        loss.backward()

    agree_in_words(program, text=False)


CTC = [dict(), dict(reduction="sum"), dict(reduction="none"), dict(blank=2), dict(zero_infinity=True)]


@pytest.mark.parametrize("kwargs", CTC, ids=str)
@pytest.mark.parametrize("form", ["padded", "joined"])
def test_ctc(kwargs, form):
    x = numbers(7, 3, 5)
    targets = [[1, 1, 3, 4], [3, 4, 1, 0], [4, 3, 0, 0]]
    lengths = [4, 2, 1]
    if kwargs.get("blank") == 2:
        targets = [[1, 1, 3, 4], [3, 4, 0, 0], [4, 3, 0, 0]]

    def call(torch, x):
        flat = torch.tensor([v for row, n in zip(targets, lengths) for v in row[:n]])
        t = torch.tensor(targets) if form == "padded" else flat
        return torch.nn.functional.ctc_loss(x.log_softmax(2), t, (7, 5, 3), tuple(lengths), **kwargs)

    derivatives_agree(call, x, node=False, tolerance=1e-8)


def test_ctc_of_impossible_and_empty_targets():
    def program(torch):
        x = torch.zeros(2, 2, 3).log_softmax(2).requires_grad_()
        out = []
        for zero in (False, True):
            loss = torch.nn.functional.ctc_loss(x, torch.tensor([[1, 1, 1], [1, 2, 0]]), (2, 2), (3, 0),
                                                reduction="none", zero_infinity=zero)
            x.grad = None
            loss.sum().backward()
            out += [loss, x.grad[:, 1]]
        return out

    agree_in_words(program, tolerance=1e-6)


@pytest.mark.parametrize("name, args", [
    ("nll_loss", (X, T[:3])), ("nll_loss", (X, Y)), ("nll_loss", (X, T + 3)), ("cross_entropy", (X, T + 3)),
    ("cross_entropy", (X, T[:3])), ("cross_entropy", (X, Y[:, :2])), ("binary_cross_entropy", (X, Q)),
    ("binary_cross_entropy", (P, Q[:2])), ("binary_cross_entropy_with_logits", (X, Y[:2])),
    ("mse_loss", (X, numbers(3, 2))), ("multi_margin_loss", (X, T + 3)), ("multi_margin_loss", (X, T[:2])),
    ("multilabel_margin_loss", (X, T)), ("cosine_embedding_loss", (X, Y, SIGNS)),
    ("margin_ranking_loss", (X, Y, SIGNS[:, 0])),
    ("ctc_loss", (numbers(4, 2, 3), integers(2, 2, 2), [4, 9], [2, 2])),
    ("ctc_loss", (numbers(4, 2, 3), integers(2, 2, 2), [4], [2, 2])),
], ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.filterwarnings("ignore")
def test_refusals(name, args):
    both_refuse(lambda torch, *a: getattr(torch.nn.functional, name)(*a), *args)


@pytest.mark.parametrize("kwargs", [{"reduction": "all"}, {"size_average": False}, {"reduce": False}])
def test_old_and_wrong_reductions(kwargs):
    def program(torch):
        x = torch.arange(4.0)
        return torch.nn.functional.mse_loss(x, x + 2, **kwargs), torch.nn.MSELoss(**kwargs).reduction

    agree_in_words(program)


LAYERS = [("L1Loss()", 2), ("MSELoss(reduction='sum')", 2), ("SmoothL1Loss(beta=0.5)", 2), ("HuberLoss(delta=0.5)", 2),
          ("KLDivLoss(reduction='batchmean')", 2), ("PoissonNLLLoss()", 2), ("GaussianNLLLoss()", 3),
          ("CrossEntropyLoss(label_smoothing=0.1)", "class"), ("NLLLoss()", "class"), ("MultiMarginLoss(p=2)", "class"),
          ("BCEWithLogitsLoss(pos_weight=torch.tensor([2.0, 1.0, 1.0]))", 2), ("TripletMarginLoss(swap=True)", 3),
          ("TripletMarginWithDistanceLoss()", 3), ("SoftMarginLoss()", 2)]


@pytest.mark.parametrize("text, kind", LAYERS)
def test_layers(text, kind):
    def program(torch):
        torch.manual_seed(1)
        layer = eval(f"torch.nn.{text}", {"torch": torch})
        args = [torch.randn(4, 3), torch.tensor([0, 2, 1, 1])] if kind == "class" else [
            torch.rand(4, 3) for _ in range(kind)]
        return layer, layer(*args), list(layer.state_dict())

    agree_in_words(program, tolerance=1e-6)


def test_adaptive_softmax():
    def program(torch):
        torch.manual_seed(0)
        layer = torch.nn.AdaptiveLogSoftmaxWithLoss(16, 20, [5, 10, 15], div_value=2.0)
        x = torch.randn(6, 16, requires_grad=True)
        out = layer(x, torch.tensor([0, 5, 10, 17, 3, 19]))
        out.loss.backward()
        return layer, out.output, out.loss, x.grad, layer.log_prob(x), layer.predict(x), list(layer.state_dict())

    agree_in_words(program, tolerance=1e-5)


def test_linear_cross_entropy_layer():
    def program(torch):
        torch.manual_seed(0)
        layer = torch.nn.LinearCrossEntropyLoss(5, 10, out_features=(2,), bias=True)
        return layer, layer(torch.randn(3, 5), torch.randint(0, 10, (3, 2))), list(layer.state_dict())

    agree_in_words(program, tolerance=1e-6)


def test_losses_take_half_precision():
    for torch in MODULES.values():
        x = torch.tensor([[1.0, 2.0], [3.0, 4.0]]).to(torch.bfloat16).requires_grad_()
        loss = torch.nn.functional.cross_entropy(x, torch.tensor([0, 1]))
        loss.backward()
        assert loss.dtype is torch.bfloat16 and x.grad.dtype is torch.bfloat16
        assert abs(loss.item() - 0.8133) < 0.01
