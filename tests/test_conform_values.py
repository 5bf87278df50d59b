"""Values that PyTorch's tests found wrong: dtypes of reductions, zero-dimensional draws, old constructors."""

import pytest
import torch
from compare import agree_on

import flambeau

EXPRESSIONS = """
torch.randint(0, 2, (), dtype=torch.bool)
torch.zeros((), dtype=torch.bool).random_(0, 2)
torch.randint(0, 2, (5,), dtype=torch.bool)
torch.randint(0, 2, (), dtype=torch.bool).logical_not().sum()
torch.ones(3, dtype=torch.bool).prod(dtype=torch.int8)
torch.full((3,), 100).prod(dtype=torch.uint8)
torch.ones(2, 3).prod(0, dtype=torch.int16)
torch.ones(5000, dtype=torch.int16).prod(dtype=torch.int16)
torch.zeros(2).new(torch.Size([])).shape
torch.Tensor(torch.Size([])).shape
torch.FloatTensor(torch.Size([2, 0])).shape
torch.zeros(2).new().shape
torch.zeros(2).new(3).shape
torch.ones(2).module_load(torch.zeros(2))
torch.testing.make_tensor(3, dtype=torch.bool, device='cpu', low=-5, high=9).dtype
torch.testing.make_tensor(4, dtype=torch.uint8, device='cpu', low=-5, high=900).shape
torch.testing.make_tensor(4, dtype=torch.uint8, device='cpu', low=300, high=900)
torch.masked.var(torch.arange(4.), 0, mask=torch.tensor([True, True, False, True]))
torch.nn.modules.__all__.count('Linear')
torch.ones(3).expand(1, 3).stride()
torch.tensor([True]) ** 2
torch.ones(2).__repr__(tensor_contents='abc')
torch._tensor_str._str(torch.ones(2))
str(torch.nn.Linear(1, 1).load_state_dict({'weight': torch.ones(1, 1), 'x': 1}, strict=False))
torch.nn.functional.pad(torch.arange(12.).view(1, 1, 3, 4), (-1, 1, 0, 0), mode='replicate')
torch.nn.functional.pad(torch.arange(12.).view(1, 1, 3, 4), (-1, 1, 0, 0), mode='reflect')
""".strip().splitlines()


@pytest.mark.parametrize("source", EXPRESSIONS)
def test_same_as_pytorch(source):
    agree_on(source)


def test_module_names_of_nn_modules():
    assert set(torch.nn.modules.__all__) <= set(flambeau.nn.modules.__all__) | {"Container", "NLLLoss2d"}


def test_input_mask():
    for mod in (torch, flambeau):
        x = mod.ones(2, 3)
        with pytest.raises(ValueError, match="requires explicit mask"):
            mod.masked._input_mask(x)
        assert mod.masked._input_mask(x, mask=mod.tensor([True, False, True])).tolist() == [[True, False, True]] * 2
