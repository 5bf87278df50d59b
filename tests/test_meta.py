"""The meta device: shapes, dtypes and strides of everything, memory for nothing."""

import resource

import pytest
import torch
from compare import agree_on
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau

EXPRESSIONS = """
torch.ones(2,3).new_zeros(2, device='meta')
torch.ones(2, device='meta')
repr(torch.ones(2, device='meta'))
repr(torch.ones(2, 3, device='meta', dtype=torch.int32))
repr(torch.ones((), device='meta', requires_grad=True))
torch.ones(2, device='meta', dtype=torch.int64)
torch.ones(2, device='meta').item()
torch.ones(1, device='meta').item()
torch.ones(2, device='meta').tolist()
torch.ones(2, device='meta').numpy()
torch.ones(2, device='meta').cpu()
torch.ones(2, device='meta').to('cpu')
torch.ones(2, device='meta') + torch.ones(2)
torch.ones(2, device='meta') + torch.ones(())
torch.ones((), device='meta') + torch.ones(2)
torch.ones(2) * torch.ones(2, device='meta')
torch.ones(2, device='meta') @ torch.ones(2)
bool(torch.ones(1, device='meta'))
float(torch.ones(1, device='meta'))
torch.ones(2, device='meta').data_ptr()
torch.ones(2, device='meta').nonzero()
torch.ones(2).copy_(torch.ones(2, device='meta'))
torch.ones(2, device='meta').copy_(torch.ones(2))
torch.ones(2,3,device='meta').t()
torch.ones(2,3,device='meta') * torch.ones(2,1,device='meta')
torch.ones(2,3,device='meta') * torch.ones(4,device='meta')
torch.ones(2,3,device='meta') * 2
2 / torch.ones(2,3,device='meta')
torch.ones(2,3,device='meta').exp()
torch.ones(2,3,device='meta').t().exp()
torch.ones(2,3,device='meta').sum(0)
torch.ones(2,3,device='meta').sum()
torch.ones(2,3,device='meta').max(1)[1]
torch.ones(2,3,device='meta') @ torch.ones(3,4,device='meta')
torch.ones(2,3,device='meta') == 1
torch.ones(2,3,device='meta').to(torch.int64)
torch.ones(2,3).to('meta')
torch.ones(2,3).t().to('meta')
torch.ones(2,3,device='meta').view(3,2)
torch.ones(2,3,device='meta')[0]
torch.ones(2,3,device='meta')[:,1:].storage_offset()
torch.ones(2,3,device='meta')[:,1:].t()
torch.ones(2,3,device='meta').as_strided((2,2),(1,2),1).storage_offset()
torch.ones(2,3,device='meta').add_(1)
torch.ones(2,3,device='meta').clone()
torch.ones(2,3,device='meta').t().contiguous()
torch.ones(2,3,device='meta').uniform_()
torch.rand(2,device='meta')
torch.randint(5,(2,),device='meta')
torch.randperm(5,device='meta')
torch.arange(5,device='meta')
torch.linspace(0,1,5,device='meta')
torch.eye(3,device='meta')
torch.full((2,),3,device='meta')
torch.tensor([1,2],device='meta')
torch.ones(2,3,device='meta').reshape(-1)
torch.ones(2,3,device='meta').mean(1,keepdim=True)
torch.ones(2,3,device='meta').softmax(-1)
torch.ones(100000,100000,device='meta') + 1
torch.ones(100000,100000,device='meta') + torch.ones(100000,100000,device='meta')
torch.ones(100000,100000,device='meta').mul(torch.ones(100000,device='meta'))
torch.ones(100000,100000,device='meta').exp().t()[5:, :7]
torch.ones(2,3,device='meta').fill_(2)
torch.ones(2,3,device='meta').zero_()
torch.zeros_like(torch.ones(2,3,device='meta'))
torch.zeros_like(torch.ones(2,3), device='meta')
torch.empty_like(torch.ones(2,3,device='meta'), device='cpu').shape
torch.ones(2,3,device='meta',requires_grad=True)
(torch.ones(2,3,device='meta',requires_grad=True)*2).sum()
torch.ones(2,3,device='meta').untyped_storage().nbytes()
torch.ones(2,3,device='meta').is_meta
torch.ones(2,3,device='meta').is_cpu
torch.ones(2,3,device='meta').type()
torch.ones(2,3,device='meta').expand(4,2,3)
torch.ones(2,3,device='meta') + torch.ones(2,3,device='meta', dtype=torch.float64)
torch.ones(2,3,device='meta').half() * 2
torch.cat([torch.ones(2,3,device='meta'), torch.ones(1,3,device='meta')])
torch.stack([torch.ones(2,device='meta'), torch.ones(2,device='meta')])
torch.ones(2,3,device='meta').split(2, 1)
torch.ones(2,3,device='meta').chunk(2)
torch.where(torch.ones(2,device='meta') > 0, torch.ones(2,device='meta'), 0.)
torch.ones(2,3,device='meta').cumsum(0)
torch.ones(4,3,device='meta').sort(0)[1]
torch.ones(4,3,device='meta').index_select(0, torch.ones(2, dtype=torch.int64, device='meta'))
torch.ones(4,3,device='meta').unsqueeze(1).squeeze()
torch.ones(4,3,device='meta').permute(1, 0)
torch.ones(4,3,device='meta').clamp(0, 1)
torch.ones(4,3,device='meta').tril()
"""

# Far larger than memory: nothing of this size may be computed.
LARGE = """
(torch.ones(100000,100000,device='meta') @ torch.ones(100000,30000,device='meta')).shape
(torch.ones(100000,1,device='meta') @ torch.ones(1,100000,device='meta')).shape
torch.ones(100000,100000,device='meta').sum(0)
torch.ones(100000,100000,device='meta').sum()
torch.ones(100000,100000,device='meta').softmax(-1)
torch.ones(100000,100000,device='meta').t().contiguous()
torch.ones(100000,100000,device='meta').t().clone()
torch.cat([torch.ones(100000,5,device='meta'), torch.ones(3,5,device='meta')])
torch.cat([torch.ones(100000,5,device='meta')]*2)
torch.ones(100000,100000,device='meta').to(torch.float16)
torch.ones(50000,4096,device='meta').view(-1, 64).shape
torch.ones(50000,4096,device='meta').t().reshape(-1)
torch.ones(8,5000,4096,device='meta').mean((0,1))
torch.ones(50000,4096,device='meta').max(1)[0]
torch.ones(50000,4096,device='meta').argmax(1)
torch.ones(50000,4096,device='meta').cumsum(1)
torch.ones(50000,4096,device='meta')[:, 5:70].sum(1)
torch.ones(50000,4096,device='meta').sort(1)[0]
torch.ones(32,1024,768,device='meta').matmul(torch.ones(768,3072,device='meta'))
torch.ones(50257,768,device='meta').index_select(0, torch.ones(1024,dtype=torch.int64,device='meta'))
torch.stack([torch.ones(100000,50,device='meta')]*2)
torch.ones(50000,4096,device='meta').repeat(2, 1)
torch.ones(50000,4096,device='meta').tril()
torch.einsum('bij,bjk->bik', torch.ones(8,5000,64,device='meta'), torch.ones(8,64,5000,device='meta'))
torch.ones(50000,4096,device='meta').norm()
torch.where(torch.ones(50000,4096,device='meta') > 0, 1., torch.ones(4096,device='meta'))
"""


@pytest.mark.parametrize("source", (EXPRESSIONS + LARGE[1:]).strip().split("\n"))
def test_as_pytorch(source):
    agree_on(source)


def test_gradients_have_shapes():
    x = flambeau.ones(3, 4, device="meta", requires_grad=True)
    w = flambeau.ones(4, 5, device="meta", requires_grad=True)
    ((x @ w).tanh() * 2).sum().backward()
    assert x.grad.shape == x.shape and w.grad.shape == w.shape and w.grad.is_meta


def test_no_memory_is_used():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    x = flambeau.zeros(1 << 20, 1 << 16, device="meta")
    for _ in range(20):
        x = (x + 1).exp() * x
    assert x.shape == (1 << 20, 1 << 16)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@settings(max_examples=60, deadline=None)
@given(st.lists(st.integers(0, 4), max_size=4), st.data())
def test_views_have_pytorch_strides(shape, data):
    order = data.draw(st.permutations(range(len(shape))))
    theirs, ours = torch.empty(shape, device="meta"), flambeau.empty(shape, device="meta")
    assert theirs.permute(order).stride() == ours.permute(order).stride()
    assert theirs.permute(order).contiguous().stride() == ours.permute(order).contiguous().stride()
    a, b = (theirs.permute(order) + 1), (ours.permute(order) + 1)
    assert tuple(a.shape) == tuple(b.shape) and (a.stride() == b.stride() or 0 in shape or 1 in shape)


def test_modules_of_data_move_there():
    with flambeau.device("meta"):
        made = [flambeau.zeros(2), flambeau.rand(2), flambeau.tensor([1.0]), flambeau.arange(3),
                flambeau.as_tensor([1])]
    assert all(t.is_meta for t in made)


@pytest.mark.parametrize("name", ["pow", "hypot", "copysign", "atan2", "tanh", "sigmoid"])
def test_gradients_that_need_the_result(name):
    leaves = [flambeau.ones(2, 3, device="meta", requires_grad=True) for _ in range(1 if name in ("tanh", "sigmoid") else 2)]
    getattr(flambeau, name)(*leaves).sum().backward()
    assert all(leaf.grad.is_meta and leaf.grad.shape == (2, 3) for leaf in leaves)
