import numpy as np
import torch
import torch.nn as nn
import torch.autograd as autograd
torch.manual_seed(0); np.random.seed(0)
torch.set_default_dtype(torch.float32)


class SineLayer(nn.Module):
    def __init__(self, i, o, bias=True, is_first=False, omega_0=30):
        super().__init__()
        self.omega_0, self.is_first, self.in_features = omega_0, is_first, i
        self.linear = nn.Linear(i, o, bias=bias)
        self.init_weights()

    def init_weights(self):
        with torch.no_grad():
            if self.is_first:
                self.linear.weight.uniform_(-1 / self.in_features, 1 / self.in_features)
            else:
                self.linear.weight.uniform_(-np.sqrt(6 / self.in_features) / self.omega_0, np.sqrt(6 / self.in_features) / self.omega_0)

    def forward(self, input):
        return torch.sin(self.omega_0 * self.linear(input))


class Siren(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(SineLayer(2, 16, is_first=True), SineLayer(16, 16), nn.Linear(16, 1))

    def forward(self, coords):
        coords = coords.clone().detach().requires_grad_(True)
        return self.net(coords), coords


def gradient(y, x, grad_outputs=None):
    if grad_outputs is None:
        grad_outputs = torch.ones_like(y)
    return torch.autograd.grad(y, [x], grad_outputs=grad_outputs, create_graph=True)[0]


def divergence(y, x):
    div = 0.
    for i in range(y.shape[-1]):
        div += torch.autograd.grad(y[..., i], x, torch.ones_like(y[..., i]), create_graph=True)[0][..., i:i+1]
    return div


def get_mgrid(sidelen, dim=2):
    tensors = tuple(dim * [torch.linspace(-1, 1, steps=sidelen)])
    mgrid = torch.stack(torch.meshgrid(*tensors, indexing='ij'), dim=-1)
    return mgrid.reshape(-1, dim)


siren = Siren()
optim = torch.optim.Adam(lr=1e-4, params=siren.parameters())
coords, gt = get_mgrid(6), torch.rand(36, 1)
for step in range(4):
    out, c = siren(coords)
    g = gradient(out, c)
    lap = divergence(g, c)
    loss = ((out - gt)**2).mean() + 1e-4 * (lap ** 2).mean()
    optim.zero_grad(); loss.backward(); optim.step()
    print("Step %d, Total loss %0.6f" % (step, loss), g.norm(dim=-1).mean().item())


class PINN(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.activation = nn.Tanh()
        self.linears = nn.ModuleList([nn.Linear(layers[i], layers[i+1]) for i in range(len(layers)-1)])
        self.lambda_1 = nn.Parameter(torch.tensor([0.5]))
        for i in range(len(layers)-1):
            nn.init.xavier_normal_(self.linears[i].weight.data, gain=1.0)
            nn.init.zeros_(self.linears[i].bias.data)

    def forward(self, x):
        if torch.is_tensor(x) != True:
            x = torch.from_numpy(x)
        a = x.float()
        for i in range(len(self.linears)-1):
            a = self.activation(self.linears[i](a))
        return self.linears[-1](a)

    def loss(self, xf, xu, u):
        g = xf.clone()
        g.requires_grad = True
        out = self.forward(g)
        u_x_t = autograd.grad(out, g, torch.ones([xf.shape[0], 1]), retain_graph=True, create_graph=True)[0]
        u_xx_tt = autograd.grad(u_x_t, g, torch.ones(xf.shape), create_graph=True)[0]
        u_x, u_t, u_xx = u_x_t[:, [0]], u_x_t[:, [1]], u_xx_tt[:, [0]]
        f = u_t + out * u_x - self.lambda_1 * u_xx
        return nn.MSELoss(reduction='mean')(self.forward(xu), u) + nn.MSELoss()(f, torch.zeros_like(f))


pinn = PINN([2, 12, 12, 1])
xf = torch.from_numpy(np.random.rand(30, 2)).float()
xu = torch.from_numpy(np.random.rand(10, 2)).float()
u = -torch.sin(np.pi * xu[:, [0]])
opt = torch.optim.Adam(pinn.parameters(), lr=1e-3)
for i in range(3):
    opt.zero_grad(); l = pinn.loss(xf, xu, u); l.backward(); opt.step(); print(l.item())
lb = torch.optim.LBFGS(pinn.parameters(), lr=0.1, max_iter=6, max_eval=None, tolerance_grad=1e-11, tolerance_change=1e-11,
                       history_size=100, line_search_fn='strong_wolfe')
def closure():
    lb.zero_grad(); l = pinn.loss(xf, xu, u); l.backward(); print('%.5f' % l.item()); return l
lb.step(closure)
print(pinn.lambda_1)
