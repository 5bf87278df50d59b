"""assert_close says what PyTorch's says; make_tensor draws what PyTorch's draws."""

import importlib

import pytest
import torch
from compare import agree_on

import flambeau

COMPARISONS = """
close(torch.ones(2), torch.ones(2))
close(torch.tensor([1.,2,3]), torch.tensor([1.,2,4]))
close(torch.tensor([[1.,2],[3,4]]), torch.tensor([[1.,2],[3,9]]))
close(torch.tensor([1,2]), torch.tensor([1,3]))
close(torch.tensor([True,False]), torch.tensor([True,True]))
close(torch.tensor(1.), torch.tensor(2.))
close(1., 2.)
close(1, 2)
close(True, False)
close(1, 1.)
close(1j, 2j)
close([1.,2.], [1.,3.])
close([1.], [1.,2.])
close({'a':1.}, {'b':1.})
close({'a':torch.ones(2)}, {'a':torch.zeros(2)})
close(None, None)
close(None, 1)
close(torch.ones(2), torch.ones(3))
close(torch.ones(2), torch.ones(2,dtype=torch.float64))
close(torch.ones(2), torch.ones(2,dtype=torch.float64), check_dtype=False)
close(torch.ones(2,3), torch.ones(3,2).t(), check_stride=True)
close(torch.ones(2), torch.ones(2), rtol=1)
close(torch.tensor([nan]), torch.tensor([nan]))
close(torch.tensor([nan]), torch.tensor([nan]), equal_nan=True)
close(torch.tensor([inf]), torch.tensor([inf]))
close(torch.tensor([inf]), torch.tensor([1.]))
close(torch.tensor([1.]), torch.tensor([0.]))
close(torch.tensor([1.,2]), torch.tensor([1.,3]), rtol=0, atol=0)
close(torch.tensor([1.,2]), torch.tensor([1.,3]), rtol=1, atol=1)
close(torch.tensor([1.,2]), torch.tensor([1.,3]), msg="hello")
close(torch.tensor([1.,2]), torch.tensor([1.,3]), msg=lambda m: "x"+m)
close(torch.tensor([1+1j]), torch.tensor([1+2j]))
close(nan, nan)
close(nan, nan, equal_nan=True)
close(torch.ones(2).half(), torch.ones(2).half()*1.0005)
close(torch.ones(2).bfloat16(), torch.ones(2).bfloat16()*1.01)
close(torch.ones(2).double(), torch.ones(2).double()+1e-8)
close(torch.tensor([1.,nan,3]), torch.tensor([1.,2,4]))
close(1.0, inf)
close([torch.ones(2),[torch.ones(1)]], [torch.ones(2),[torch.zeros(1)]])
close(torch.zeros(0), torch.zeros(0))
close(torch.ones(2, device='meta'), torch.ones(2))
"""


@pytest.mark.parametrize("source", COMPARISONS.strip().split("\n"))
def test_assert_close_as_pytorch(source):
    found = []
    for package in (torch, flambeau):
        close = importlib.import_module(package.__name__ + ".testing").assert_close
        try:
            eval(source, {"torch": package, "close": close, "nan": float("nan"), "inf": float("inf")})
            found.append("passes")
        except Exception as error:
            found.append((type(error).__name__, str(error)))
    assert found[0] == found[1]


def test_unknown_types_are_refused():
    for pair in (("a", "a"), (flambeau.ones(1), 1.0), (flambeau.ones(1), [1.0])):
        with pytest.raises(TypeError, match="No comparison pair"):
            flambeau.testing.assert_close(*pair)


MADE = """
torch.testing.make_tensor((2,3), dtype=torch.float32, device='cpu')
torch.testing.make_tensor(5, dtype=torch.int64, device='cpu', low=2, high=9)
torch.testing.make_tensor((4,), dtype=torch.complex64, device='cpu')
torch.testing.make_tensor((4,), dtype=torch.bool, device='cpu')
torch.testing.make_tensor((2,4), dtype=torch.float32, device='cpu', noncontiguous=True)
torch.testing.make_tensor((9,), dtype=torch.uint8, device='cpu', exclude_zero=True)
torch.testing.make_tensor((4,), dtype=torch.float64, device='cpu', low=-1, high=1, requires_grad=True)
torch.testing.make_tensor((4,), dtype=torch.int64, device='cpu', requires_grad=True)
torch.testing.make_tensor((4,), dtype=torch.float16, device='cpu')
torch.testing.make_tensor((), dtype=torch.float32, device='cpu')
torch.testing.make_tensor(2, 3, dtype=torch.int8, device='cpu')
torch.testing.make_tensor((3,), dtype=torch.float32, device='cpu', low=3, high=1)
torch.testing.make_tensor((3,), dtype=torch.float32, device='cpu', low=nan, high=1)
torch.testing.make_tensor((0, 3), dtype=torch.float32, device='cpu')
"""


@pytest.mark.parametrize("source", MADE.strip().split("\n"))
def test_make_tensor_as_pytorch(source):
    agree_on(source)
