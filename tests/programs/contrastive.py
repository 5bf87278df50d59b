import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F


class NTXent(nn.Module):
    def __init__(self, batch_size, temperature):
        super().__init__()
        self.batch_size, self.temperature = batch_size, temperature
        self.mask = self.mask_correlated_samples(batch_size)
        self.criterion = nn.CrossEntropyLoss(reduction="sum")
        self.similarity_f = nn.CosineSimilarity(dim=2)

    def mask_correlated_samples(self, n):
        N = 2 * n
        mask = torch.ones((N, N), dtype=bool)
        mask = mask.fill_diagonal_(0)
        for i in range(n):
            mask[i, n + i] = 0
            mask[n + i, i] = 0
        return mask

    def forward(self, z_i, z_j):
        N = 2 * self.batch_size
        z = torch.cat((z_i, z_j), dim=0)
        sim = self.similarity_f(z.unsqueeze(1), z.unsqueeze(0)) / self.temperature
        sim_i_j, sim_j_i = torch.diag(sim, self.batch_size), torch.diag(sim, -self.batch_size)
        positive = torch.cat((sim_i_j, sim_j_i), dim=0).reshape(N, 1)
        negative = sim[self.mask].reshape(N, -1)
        labels = torch.zeros(N).to(positive.device).long()
        return self.criterion(torch.cat((positive, negative), dim=1), labels) / N


def info_nce(features, n_views=2, temperature=0.07):
    labels = torch.cat([torch.arange(features.shape[0] // 2) for i in range(n_views)], dim=0)
    labels = (labels.unsqueeze(0) == labels.unsqueeze(1)).float()
    features = F.normalize(features, dim=1)
    sim = torch.matmul(features, features.T)
    mask = torch.eye(labels.shape[0], dtype=torch.bool)
    labels = labels[~mask].view(labels.shape[0], -1)
    sim = sim[~mask].view(sim.shape[0], -1)
    positives = sim[labels.bool()].view(labels.shape[0], -1)
    negatives = sim[~labels.bool()].view(sim.shape[0], -1)
    return torch.cat([positives, negatives], dim=1) / temperature, torch.zeros(labels.shape[0], dtype=torch.long)


torch.manual_seed(0)
net = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
opt = torch.optim.SGD(net.parameters(), 0.05, momentum=0.9)
crit = NTXent(6, 0.5)
x = torch.randn(6, 10)
for i in range(4):
    a, b = net(x + 0.1 * torch.randn_like(x)), net(x + 0.1 * torch.randn_like(x))
    logits, labels = info_nce(torch.cat([a, b]))
    loss = crit(a, b) + F.cross_entropy(logits, labels)
    opt.zero_grad(); loss.backward(); opt.step()
    print(loss.item())
# BYOL / MoCo style momentum encoder, queue
import copy
target = copy.deepcopy(net)
for p in target.parameters(): p.requires_grad_(False)
queue = F.normalize(torch.randn(8, 12), dim=0)
ptr = 0
for i in range(3):
    with torch.no_grad():
        for pq, pk in zip(net.parameters(), target.parameters()):
            pk.data = pk.data * 0.99 + pq.data * (1. - 0.99)
        k = F.normalize(target(x), dim=1)
    q = F.normalize(net(x), dim=1)
    l_pos = torch.einsum('nc,nc->n', [q, k]).unsqueeze(-1)
    l_neg = torch.einsum('nc,ck->nk', [q, queue.clone().detach()])
    logits = torch.cat([l_pos, l_neg], dim=1) / 0.07
    loss = F.cross_entropy(logits, torch.zeros(logits.shape[0], dtype=torch.long))
    opt.zero_grad(); loss.backward(); opt.step()
    queue[:, ptr:ptr + 6] = k.T
    ptr = (ptr + 6) % 12
    print(loss.item(), queue.std().item())
# triplet with batch-hard mining, ArcFace, center loss, barlow twins
def pairwise(e):
    dot = torch.matmul(e, e.t())
    sq = torch.diag(dot)
    d = sq.unsqueeze(0) - 2.0 * dot + sq.unsqueeze(1)
    d[d < 0] = 0
    m = d.eq(0).float()
    return (1.0 - m) * torch.sqrt(d + m * 1e-16)

lab = torch.tensor([0, 0, 1, 1, 2, 2])
e = net(x)
pd = pairwise(e)
same = (lab[None] == lab[:, None]).byte()
hp = (same.bool() & ~torch.eye(6).bool()).float() * pd
hn = pd + pd.max(1, keepdim=True)[0] * same
tl = torch.clamp_min(hp.max(1)[0] - hn.min(1)[0] + 0.2, 0).mean()
tl2 = nn.TripletMarginLoss(margin=1.0, p=2)(e[:2], e[2:4], e[4:])
ce = nn.CosineEmbeddingLoss(margin=0.1)(e[:3], e[3:], torch.tensor([1., -1., 1.]))
c = (e - e.mean(0)) / e.std(0)
cc = c.T @ c / 6
bt = torch.diagonal(cc).add(-1).pow(2).sum() + 0.005 * cc.flatten()[:-1].view(7, 9)[:, 1:].flatten().pow(2).sum()
W = nn.Parameter(torch.FloatTensor(3, 8)); nn.init.xavier_uniform_(W)
cosine = F.linear(F.normalize(e), F.normalize(W))
sine = torch.sqrt((1.0 - torch.pow(cosine, 2)).clamp(0, 1))
phi = cosine * np.cos(0.5) - sine * np.sin(0.5)
phi = torch.where(cosine > np.cos(np.pi - 0.5), phi, cosine - 0.1)
one_hot = torch.zeros(cosine.size()); one_hot.scatter_(1, lab.view(-1, 1).long(), 1)
arc = F.cross_entropy(((one_hot * phi) + ((1.0 - one_hot) * cosine)) * 30.0, lab)
total = tl + tl2 + ce + bt + arc
total.backward()
print(tl.item(), tl2.item(), ce.item(), bt.item(), arc.item(), W.grad.norm())
