"""Numbers that do not fit a dtype: written in every way, they raise where PyTorch's do."""

import pytest
from compare import agree_on

WAYS = ("torch.full((1,), {v}, dtype={d})", "torch.zeros(1, dtype={d}).fill_({v})", "torch.tensor([{v}], dtype={d})",
        "torch.zeros(1, dtype={d}).masked_fill(torch.tensor([True]), {v})", "torch.zeros(1, dtype={d}).__setitem__(0, {v})",
        "torch.zeros(1, dtype={d}).index_fill(0, torch.tensor([0]), {v})")


@pytest.mark.parametrize("dtype", ["int8", "uint8", "int64", "bool", "float32", "float16", "bfloat16"])
@pytest.mark.parametrize("way", WAYS)
def test_numbers_at_the_edges(way, dtype):
    for value in ("127.06", "127.0", "128.0", "-128.5", "-0.5", "255.5", "300", "-300", "-1", "-255", "-256", "nan", "1e300"):
        agree_on(way.format(v=value, d=f"torch.{dtype}"), warned=False)


@pytest.mark.parametrize("exponent", ["2.104", "2.1", "-3", "400", "nan"])
@pytest.mark.parametrize("dtype", ["int8", "int64", "uint8"])
def test_one_power(exponent, dtype):
    agree_on(f"torch.logspace({exponent}, 0, 1, dtype=torch.{dtype})", warned=False)
