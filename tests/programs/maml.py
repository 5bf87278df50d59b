import torch
import torch.nn as nn
import torch.nn.functional as F
from collections import OrderedDict
from torch.func import functional_call, vmap, grad, jacrev, hessian
import numpy as np

torch.manual_seed(0); rng = np.random.RandomState(0)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1, self.fc2, self.fc3 = nn.Linear(1, 20), nn.Linear(20, 20), nn.Linear(20, 1)

    def forward(self, x):
        return self.fc3(F.relu(self.fc2(F.relu(self.fc1(x)))))

    def argforward(self, x, w):
        x = F.relu(F.linear(x, w[0], w[1]))
        x = F.relu(F.linear(x, w[2], w[3]))
        return F.linear(x, w[4], w[5])


def task(k=6):
    a, p = rng.uniform(0.1, 5), rng.uniform(0, 3.14)
    x = rng.uniform(-5, 5, (2 * k, 1))
    y = a * np.sin(x + p)
    x, y = torch.tensor(x, dtype=torch.float), torch.tensor(y, dtype=torch.float)
    return x[:k], y[:k], x[k:], y[k:]


net = Net()
meta = torch.optim.Adam(net.parameters(), 1e-3)
for it in range(4):
    loss_sum = 0
    for _ in range(3):
        xs, ys, xq, yq = task()
        w = [p.clone() for p in net.parameters()]
        for _ in range(2):
            l = F.mse_loss(net.argforward(xs, w), ys)
            g = torch.autograd.grad(l, w, create_graph=True)
            w = [p - 0.01 * gg for p, gg in zip(w, g)]
        loss_sum = loss_sum + F.mse_loss(net.argforward(xq, w), yq)
    mg = torch.autograd.grad(loss_sum / 3, net.parameters())
    for p, g in zip(net.parameters(), mg):
        p.grad = g
    meta.step()
    print('%.6f' % (loss_sum.item() / 3))
# functional call way
params = dict(net.named_parameters())
xs, ys, xq, yq = task()
l = F.mse_loss(functional_call(net, params, (xs,)), ys)
grads = torch.autograd.grad(l, tuple(params.values()), create_graph=True)
fast = OrderedDict((n, p - 0.01 * g) for (n, p), g in zip(params.items(), grads))
outer = F.mse_loss(functional_call(net, fast, (xq,)), yq)
outer.backward()
print(outer, net.fc1.weight.grad.norm())


def loss_fn(params, x, y):
    return F.mse_loss(functional_call(net, params, (x.unsqueeze(0),)), y.unsqueeze(0))

detached = {k: v.detach() for k, v in params.items()}
per_sample = vmap(grad(loss_fn), in_dims=(None, 0, 0))(detached, xs, ys)
print({k: tuple(v.shape) for k, v in per_sample.items()}, per_sample['fc3.bias'].flatten())
f = lambda x: (x ** 3).sum()
print(hessian(f)(torch.arange(3.)), jacrev(torch.sin)(torch.arange(2.)))
# reptile
import copy
inner = copy.deepcopy(net)
o = torch.optim.SGD(inner.parameters(), 0.02)
for _ in range(3):
    o.zero_grad(); F.mse_loss(inner(xs), ys).backward(); o.step()
before = {n: p.clone() for n, p in net.state_dict().items()}
after = inner.state_dict()
net.load_state_dict({n: before[n] + (after[n] - before[n]) * 0.1 for n in before})
print(net(xq).mean())
