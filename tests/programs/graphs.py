"""Graph networks: sums, means and maxima over edges, attention by edge, a sparse adjacency matrix."""
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
N, E = 16, 50
x, edges, y = torch.randn(N, 6), torch.randint(0, N, (2, E)), torch.randint(0, 3, (N,))
train = torch.zeros(N, dtype=torch.bool)
train[:10] = True


class Gather(nn.Module):
    def __init__(self, a, b, how):
        super().__init__()
        self.how, self.own, self.theirs = how, nn.Linear(a, b), nn.Linear(a, b, bias=False)

    def forward(self, x, edges):
        source, goal = edges
        sent = x[source]
        wide = goal.unsqueeze(-1).expand_as(sent)
        if self.how == "sum":
            got = torch.zeros_like(x).index_add_(0, goal, sent)
        elif self.how == "mean":
            degree = torch.bincount(goal, minlength=x.size(0)).clamp_(min=1).to(x.dtype)
            got = torch.zeros_like(x).scatter_add_(0, wide, sent) / degree.view(-1, 1)
        else:
            got = torch.full_like(x, float("-inf")).scatter_reduce(0, wide, sent, reduce="amax")
            got = got.masked_fill(torch.isinf(got), 0.0)
        return F.normalize(self.own(x) + self.theirs(got), p=2.0, dim=-1)


for how in ("sum", "mean", "max"):
    layers = nn.ModuleList([Gather(6, 8, how), Gather(8, 3, how)])
    optimizer = torch.optim.Adam([{"params": layers[0].parameters(), "weight_decay": 5e-4}, {"params": layers[1].parameters()}], lr=0.02)
    for epoch in range(4):
        layers.train()
        optimizer.zero_grad()
        out = F.log_softmax(layers[1](F.dropout(F.elu(layers[0](x, edges)), 0.5, training=layers.training), edges), dim=1)
        loss = F.nll_loss(out[train], y[train])
        loss.backward()
        optimizer.step()
        right = int((out.argmax(-1)[~train] == y[~train]).sum())
        print(f"{how} {epoch:03d} loss {loss:.5f} right {right}/{int((~train).sum())}")
a = nn.Parameter(torch.randn(12))
logits = F.leaky_relu((torch.cat([x[edges[0]], x[edges[1]]], -1) * a).sum(-1), 0.2)
top = torch.zeros(N).scatter_reduce(0, edges[1], logits, "amax", include_self=False)
weight = (logits - top[edges[1]]).exp()
weight = weight / torch.zeros(N).index_add(0, edges[1], weight)[edges[1]]
weight.pow(2).sum().backward()
print(a.grad, torch.unique(edges[1], return_counts=True))
dense = torch.eye(N).index_put_((edges[0], edges[1]), torch.ones(E), accumulate=True)
half = dense.sum(1).pow(-0.5)
dense = half[:, None] * dense * half
where = dense.nonzero().t()
sparse = torch.sparse_coo_tensor(where, dense[where[0], where[1]], (N, N)).coalesce()
w = nn.Parameter(torch.Tensor(6, 3))
nn.init.xavier_normal_(w)
F.cross_entropy(torch.spmm(sparse, x @ w), y).backward()
print(w.grad, torch.sparse.mm(sparse, x).sum(), sparse.to_dense().equal(dense))
