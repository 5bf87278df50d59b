"""Arrays whose lines are loaded in runs, and products whose operands are copied to be: beside the CPU."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import agree, draw

import flambeau as fl

pytestmark = needs_gxx


@pytest.mark.parametrize("dtype", [fl.float32, fl.bfloat16, fl.int8, fl.float64])
def test_lines(dtype, cuda):
    x, row, column, one = draw(3, 5, 32, dtype=dtype), draw(32, dtype=dtype), draw(5, 1, dtype=dtype), draw(1, dtype=dtype)
    agree(lambda a, b: a + b, x, row)
    agree(lambda a, b: a * b, x, column)
    agree(lambda a, b: a * b, x[:, ::2], one)
    agree(lambda a, b, c: fl.where(a > b, a, c), x, row, column)
    agree(lambda a: fl.cat([a, a + 1, a], 2), x)
    agree(lambda a: a.transpose(0, 1).contiguous(), x)
    agree(lambda a: a[:, 1:, 16:].contiguous() + a[:, :-1, :16], x)
    agree(lambda a: a[..., 1:-3] + a[..., 3:-1], x)   # no line starts where a run does
    agree(lambda a: a[:, :, :30].clone() + 1, x)      # nor ends
    agree(lambda a: a.to(fl.float32) + a[:, :1], x)


def test_products_of_odd_sizes(cuda, monkeypatch):
    from flambeau.backends.cuda import fitted
    monkeypatch.setattr(fitted, "_WORTH", 1)
    for dtype in (fl.bfloat16, fl.float16):
        a, b, bias = draw(6, 13, dtype=dtype) / 4, draw(13, 9, dtype=dtype) / 4, draw(9, dtype=dtype)
        for function in (lambda a, b, c: a @ b, lambda a, b, c: (b.t() @ a.t()), lambda a, b, c: fl.addmm(c, a, b),
                         lambda a, b, c: a[:, :8] @ b[:8], lambda a, b, c: a[:, 1:] @ b[1:],
                         lambda a, b, c: fl.nn.functional.linear(a, b.t().contiguous(), c)):
            on_cpu = function(*[x.float() for x in (a, b, bias)])
            made = function(*[x.cuda() for x in (a, b, bias)])
            assert made.is_contiguous() and made.dtype is dtype
            fl.testing.assert_close(made.cpu().float(), on_cpu, rtol=2e-2, atol=2e-2)


def test_steps_of_channels_last_parameters(cuda):
    for optimizer in (fl.optim.SGD, fl.optim.AdamW):
        made = []
        for device in ("cpu", cuda):
            p = draw(4, 3, 3, 3).to(memory_format=fl.channels_last).to(device).requires_grad_()
            q = draw(5).to(device).requires_grad_()
            options = dict(momentum=0.9) if optimizer is fl.optim.SGD else {}
            steps = optimizer([p, q], lr=0.1, weight_decay=0.1, **options)
            for n in range(3):
                p.grad = (draw(4, 3, 3, 3, seed=n) * 2).to(memory_format=fl.channels_last).to(device)
                q.grad = draw(5, seed=n).to(device)
                steps.step()
            made.append((p.detach().cpu(), q.detach().cpu()))
            assert p.is_contiguous(memory_format=fl.channels_last)
        fl.testing.assert_close(made[0], made[1])
