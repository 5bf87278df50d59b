import torch
import torch.nn as nn
import torch.nn.functional as F
torch.manual_seed(0)


class MessagePassing(nn.Module):
    def __init__(self, aggr="add"):
        super().__init__()
        self.aggr = aggr

    def propagate(self, edge_index, x, **kw):
        row, col = edge_index
        msg = self.message(x[row], x[col], **kw)
        if self.aggr == "add":
            return torch.zeros(x.size(0), msg.size(1)).index_add_(0, col, msg)
        if self.aggr == "mean":
            out = torch.zeros(x.size(0), msg.size(1)).scatter_add_(0, col.unsqueeze(-1).expand_as(msg), msg)
            deg = torch.zeros(x.size(0)).scatter_add_(0, col, torch.ones(col.size(0))).clamp_(min=1)
            return out / deg.unsqueeze(-1)
        return torch.full((x.size(0), msg.size(1)), float('-inf')).scatter_reduce(0, col[:, None].expand_as(msg), msg, reduce='amax', include_self=True)


class GCNConv(MessagePassing):
    def __init__(self, i, o):
        super().__init__("add")
        self.lin = nn.Linear(i, o, bias=False)
        self.bias = nn.Parameter(torch.empty(o))
        self.reset_parameters()

    def reset_parameters(self):
        self.lin.reset_parameters()
        self.bias.data.zero_()

    def forward(self, x, edge_index):
        loop = torch.arange(x.size(0)).unsqueeze(0).repeat(2, 1)
        edge_index = torch.cat([edge_index, loop], dim=1)
        x = self.lin(x)
        row, col = edge_index
        deg = torch.bincount(col, minlength=x.size(0)).to(x.dtype)
        d = deg.pow(-0.5)
        d[d == float('inf')] = 0
        return self.propagate(edge_index, x, norm=d[row] * d[col]) + self.bias

    def message(self, x_j, x_i, norm):
        return norm.view(-1, 1) * x_j


class SAGE(MessagePassing):
    def __init__(self, i, o, aggr):
        super().__init__(aggr)
        self.l, self.r = nn.Linear(i, o), nn.Linear(i, o, bias=False)

    def forward(self, x, e):
        out = self.propagate(e, x)
        out = torch.nan_to_num(out, neginf=0.0)
        return F.normalize(self.l(out) + self.r(x), p=2., dim=-1)

    def message(self, x_j, x_i):
        return x_j


def softmax(src, index, n):
    m = torch.zeros(n).scatter_reduce(0, index, src, 'amax', include_self=False)
    out = (src - m[index]).exp()
    s = torch.zeros(n).index_add(0, index, out)
    return out / (s[index] + 1e-16)


N, E = 16, 50
x = torch.randn(N, 6)
edge_index = torch.randint(0, N, (2, E))
y = torch.randint(0, 3, (N,))
train_mask = torch.zeros(N, dtype=torch.bool); train_mask[:10] = True
for name, layers in dict(gcn=[GCNConv(6, 8), GCNConv(8, 3)], mean=[SAGE(6, 8, 'mean'), SAGE(8, 3, 'mean')], max=[SAGE(6, 8, 'max'), SAGE(8, 3, 'max')]).items():
    model = nn.ModuleList(layers)
    opt = torch.optim.Adam([dict(params=model[0].parameters(), weight_decay=5e-4), dict(params=model[1].parameters(), weight_decay=0)], lr=0.01)
    for epoch in range(4):
        model.train(); opt.zero_grad()
        h = F.dropout(F.relu(model[0](x, edge_index)), p=0.5, training=model.training)
        out = F.log_softmax(model[1](h, edge_index), dim=1)
        loss = F.nll_loss(out[train_mask], y[train_mask])
        loss.backward(); opt.step()
        acc = int((out.argmax(-1)[~train_mask] == y[~train_mask]).sum()) / int((~train_mask).sum())
        print(f'{name} Epoch: {epoch:03d}, Loss: {loss:.5f}, Acc: {acc:.4f}')
a = nn.Parameter(torch.randn(12))
alpha = softmax(F.leaky_relu((torch.cat([x[edge_index[0]], x[edge_index[1]]], -1) * a).sum(-1), 0.2), edge_index[1], N)
pooled = torch.zeros(2, 6).index_add_(0, torch.tensor([0, 1] * 8), x)
(alpha.pow(2).sum() + pooled.sum()).backward()
print(a.grad, torch.unique(edge_index[1], return_counts=True)[1])
adj = torch.zeros(N, N).index_put_((edge_index[0], edge_index[1]), torch.ones(E), accumulate=True)
L = torch.diag(adj.sum(1)) - adj
print(torch.linalg.matrix_power(L, 2).trace(), adj.triu().nonzero().size())
