import torch
from torch import nn
import torch.nn.functional as F
from torch.optim import Adam


class GraphAttentionLayer(nn.Module):
    def __init__(self, in_features, out_features, n_heads, concat=False, dropout=0.4, leaky_relu_slope=0.2):
        super().__init__()
        self.n_heads, self.concat, self.dropout = n_heads, concat, dropout
        self.n_hidden = out_features // n_heads if concat else out_features
        self.W = nn.Parameter(torch.empty(size=(in_features, self.n_hidden * n_heads)))
        self.a = nn.Parameter(torch.empty(size=(n_heads, 2 * self.n_hidden, 1)))
        self.leakyrelu = nn.LeakyReLU(leaky_relu_slope)
        self.softmax = nn.Softmax(dim=1)
        nn.init.xavier_normal_(self.W)
        nn.init.xavier_normal_(self.a)

    def _get_attention_scores(self, h_transformed):
        source_scores = torch.matmul(h_transformed, self.a[:, :self.n_hidden, :])
        target_scores = torch.matmul(h_transformed, self.a[:, self.n_hidden:, :])
        e = source_scores + target_scores.mT
        return self.leakyrelu(e)

    def forward(self, h, adj_mat):
        n_nodes = h.shape[0]
        h_transformed = torch.mm(h, self.W)
        h_transformed = F.dropout(h_transformed, self.dropout, training=self.training)
        h_transformed = h_transformed.view(n_nodes, self.n_heads, self.n_hidden).permute(1, 0, 2)
        e = self._get_attention_scores(h_transformed)
        connectivity_mask = -9e16 * torch.ones_like(e)
        e = torch.where(adj_mat > 0, e, connectivity_mask)
        attention = F.softmax(e, dim=-1)
        attention = F.dropout(attention, self.dropout, training=self.training)
        h_prime = torch.matmul(attention, h_transformed)
        if self.concat:
            return h_prime.permute(1, 0, 2).contiguous().view(n_nodes, self.n_hidden * self.n_heads)
        return h_prime.mean(dim=0)


class GAT(nn.Module):
    def __init__(self):
        super().__init__()
        self.gat1 = GraphAttentionLayer(12, 16, 4, concat=True)
        self.elu = nn.ELU()
        self.gat2 = GraphAttentionLayer(16, 3, 1, concat=False)

    def forward(self, x, adj):
        return F.log_softmax(self.gat2(self.elu(self.gat1(x, adj)), adj), dim=1)


class GraphConv(nn.Module):
    def __init__(self, input_dim, output_dim, use_bias=False):
        super(GraphConv, self).__init__()
        self.kernel = nn.Parameter(torch.Tensor(input_dim, output_dim))
        nn.init.xavier_normal_(self.kernel)
        self.bias = None
        if use_bias:
            self.bias = nn.Parameter(torch.Tensor(output_dim))
            nn.init.zeros_(self.bias)

    def forward(self, input_tensor, adj_mat):
        support = torch.mm(input_tensor, self.kernel)
        output = torch.spmm(adj_mat, support)
        if self.bias is not None:
            output = output + self.bias
        return output


torch.manual_seed(13)
N = 20
edges = torch.randint(0, N, (60, 2))
adj = torch.eye(N)
adj[edges[:, 0], edges[:, 1]] = 1
adj[edges[:, 1], edges[:, 0]] = 1
x = torch.randn(N, 12)
labels = torch.randint(0, 3, (N,))
idx = torch.randperm(N)
idx_train, idx_val = idx[:12], idx[12:]
model = GAT()
optimizer = Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
criterion = nn.NLLLoss()
for epoch in range(5):
    model.train()
    optimizer.zero_grad()
    output = model(x, adj)
    loss = criterion(output[idx_train], labels[idx_train])
    loss.backward()
    optimizer.step()
    model.eval()
    with torch.no_grad():
        output = model(x, adj)
        acc = (output.argmax(dim=1)[idx_val] == labels[idx_val]).float().mean()
    print(f'Epoch {epoch + 1} loss: {loss.item():.6f} val acc {acc:.4f}')
# GCN with a sparse adjacency
d = adj.sum(1).pow(-0.5)
norm = d[:, None] * adj * d[None, :]
index = norm.nonzero().t()
sparse = torch.sparse_coo_tensor(index, norm[index[0], index[1]], (N, N)).coalesce()
gcn = nn.ModuleList([GraphConv(12, 8, True), GraphConv(8, 3)])
opt = torch.optim.Adam(gcn.parameters(), lr=0.02)
for e in range(5):
    opt.zero_grad()
    h = F.relu(gcn[0](x, sparse))
    out = F.log_softmax(gcn[1](h, sparse), 1)
    loss = F.nll_loss(out, labels)
    loss.backward()
    opt.step()
    print(loss.item())
