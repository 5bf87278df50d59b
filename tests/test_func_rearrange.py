"""torch.func.rearrange: patterns of dimensions, right and wrong ones, beside PyTorch's."""

import pytest
import torch
from compare import same

import flambeau as fl

PATTERNS = [("a b c -> c (a b)", {}), ("... c -> c ...", {}), ("a b c -> a (b c) 1", {}), ("... -> (...)", {}),
            ("a ... -> a (...)", {}), ("a ... c -> (c a) ...", {}), ("a b (c d) -> d (c a) b", {"d": 2}),
            ("(x a) b c -> x (a b) c", {"x": 1}), ("a b c -> 1 (b a) c 1 1", {}), ("a b c->c b a", {})]
WRONG = [("a b c -> a b", {}), ("a b -> a b", {}), ("a b c -> a b b c", {}), ("a b c -> a b c", {"z": 3}), ("a b c", {}),
         ("a b c -> a _ c", {}), ("a ((b)) c -> a b c", {}), ("a (...) -> a", {}), ("a b c -> a -b c", {}),
         ("a ... -> ...", {}), ("a b c -> a b c d", {"d": 1})]


@pytest.mark.parametrize("pattern, sizes", PATTERNS)
def test_elements_go_where_pytorch_puts_them(pattern, sizes):
    found, expected = (mod.func.rearrange(mod.arange(24.0).reshape(2, 3, 4), pattern, **sizes) for mod in (fl, torch))
    same(expected, found)


def test_lists_are_stacked_and_gradients_flow():
    x = fl.ones(2, 3, requires_grad=True)
    made = fl.func.rearrange([x, x * 2], "n a b -> b (a n)")
    assert made.shape == (3, 4)
    (made * fl.arange(12.0).view(3, 4)).sum().backward()
    assert x.grad.tolist() == [[2.0, 14.0, 26.0], [8.0, 20.0, 32.0]]


@pytest.mark.parametrize("pattern, sizes", WRONG)
def test_wrong_patterns_are_told(pattern, sizes):
    with pytest.raises(ValueError) as expected:
        torch.func.rearrange(torch.ones(2, 3, 4), pattern, **sizes)
    with pytest.raises(ValueError) as found:
        fl.func.rearrange(fl.ones(2, 3, 4), pattern, **sizes)
    assert str(found.value).split("\n")[0] == str(expected.value).split("\n")[0]


@pytest.mark.parametrize("sizes, words", [({}, "sizes of two dimensions at once"), ({"b": 2}, "does not evenly fit")])
def test_sizes_that_cannot_be_inferred(sizes, words):
    for mod in (fl, torch):
        with pytest.raises(Exception, match=words):
            mod.func.rearrange(mod.ones(2, 3, 4), "a (b c) d -> a b c d", **sizes)
