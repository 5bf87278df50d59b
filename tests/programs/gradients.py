"""What needs gradients of gradients, or its own: meta-learning, equations as losses, custom functions, Hessians."""
import math

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Function, grad
from torch.func import functional_call, vmap
from torch.func import grad as derivative

torch.manual_seed(8)
net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 1))
meta = torch.optim.Adam(net.parameters(), lr=1e-2)
for _ in range(4):
    outer = 0
    for _ in range(3):
        x, shift = torch.rand(10, 1) * 6 - 3, torch.rand(1) * math.pi
        y, fast = torch.sin(x + shift), dict(net.named_parameters())
        for _ in range(2):
            inner = F.mse_loss(functional_call(net, fast, x[:5]), y[:5])
            fast = {n: p - 0.05 * g for (n, p), g in zip(fast.items(), grad(inner, tuple(fast.values()), create_graph=True))}
        outer = outer + F.mse_loss(functional_call(net, fast, x[5:]), y[5:])
    meta.zero_grad()
    outer.backward()
    meta.step()
    print("meta %.6f" % outer.item())
weights = {k: v.detach() for k, v in net.named_parameters()}
each = vmap(derivative(lambda w, a, b: F.mse_loss(functional_call(net, w, a[None]), b[None])), in_dims=(None, 0, 0))(weights, x, y)
print({k: tuple(v.shape) for k, v in each.items()}, each["2.bias"].flatten())
# heat equation u_t = k u_xx, with k learned
field, k = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 1)), nn.Parameter(torch.tensor([0.3]))
points, edge = torch.rand(30, 2), torch.rand(10, 2) * torch.tensor([1.0, 0.0])


def residual():
    p = points.clone().requires_grad_(True)
    first = grad(field(p), p, torch.ones(30, 1), create_graph=True)[0]
    second = grad(first[:, 0].sum(), p, create_graph=True)[0][:, [0]]
    return (first[:, [1]] - k * second).pow(2).mean() + (field(edge) - torch.sin(math.pi * edge[:, :1])).pow(2).mean()


lbfgs = torch.optim.LBFGS([*field.parameters(), k], lr=0.5, max_iter=6, line_search_fn="strong_wolfe")
for _ in range(2):
    def closure():
        lbfgs.zero_grad()
        loss = residual()
        loss.backward()
        print("equation %.5f" % loss)
        return loss
    lbfgs.step(closure)
print(k)


class Quantise(Function):
    @staticmethod
    def forward(ctx, x, levels):
        ctx.save_for_backward(x)
        ctx.levels = levels
        return torch.round(x * levels) / levels

    @staticmethod
    def backward(ctx, g):
        x, = ctx.saved_tensors
        return g * (x.abs() <= 1).to(g.dtype), None


class Cube(Function):
    @staticmethod
    def forward(ctx, x):
        ctx.save_for_backward(x)
        return x ** 3

    @staticmethod
    def backward(ctx, g):
        return g * 3 * ctx.saved_tensors[0] ** 2 if ctx.needs_input_grad[0] else None


x = torch.linspace(-1.5, 1.5, 7, requires_grad=True)
Quantise.apply(x, 4).pow(2).sum().backward()
print(x.grad, Quantise.apply(x, 4))
a = torch.randn(3, dtype=torch.double, requires_grad=True)
print(torch.autograd.gradcheck(Cube.apply, (a,)), torch.autograd.gradgradcheck(Cube.apply, (a,)))
print(torch.autograd.functional.hessian(lambda v: Cube.apply(v).sum(), a), torch.func.jacrev(torch.sin)(torch.arange(2.0)))
