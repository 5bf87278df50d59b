"""Products of half precision whose sizes are no multiples of eight are made of larger matrices."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx

import flambeau as torch
from flambeau.backends.cuda import fitted

pytestmark = needs_gxx
FORMS = {"product": lambda a, w, b: a @ w.T, "transposed": lambda a, w, b: w @ a.T,
         "by columns": lambda a, w, b: a.T.contiguous().T @ w.T,
         "with a bias": torch.nn.functional.linear, "added to": lambda a, w, b: torch.addmm(b, a, w.T, beta=0.5)}


@pytest.mark.parametrize("name", FORMS)
def test_uneven_rows(name, cuda, monkeypatch):
    monkeypatch.setattr(fitted, "_WORTH", 1)
    for dtype in (torch.bfloat16, torch.float16):
        torch.manual_seed(0)
        given = [torch.randn(*shape).to(dtype) for shape in ((6, 13), (7, 13), (7,))]
        if name == "added to":
            given[2] = given[2].expand(6, 7)
        wanted, got = FORMS[name](*given), FORMS[name](*[t.to(cuda) for t in given])
        assert got.stride() == wanted.stride()
        torch.testing.assert_close(got.cpu(), wanted)


def test_rows_of_large_parts(cuda):
    for dim in (0, 1, 2, -1):
        parts = [torch.arange(24.0).view(2, 3, 4) + 100 * n for n in range(3)]
        got = torch.cat([t.to(cuda) for t in parts], dim)
        assert got.cpu().equal(torch.cat(parts, dim))
