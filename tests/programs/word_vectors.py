"""Word vectors with sparse gradients, co-occurrence regression, contrastive losses, NumPy numbers in the arithmetic."""
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim

torch.manual_seed(1), np.random.seed(1)


class SkipGram(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        self.centre, self.around = nn.Embedding(words, width, sparse=True), nn.Embedding(words, width, sparse=True)
        self.centre.weight.data.uniform_(-0.5 / width, 0.5 / width)
        self.around.weight.data.zero_()

    def forward(self, centre, near, far):
        c = self.centre(centre)
        return -(F.logsigmoid((c * self.around(near)).sum(1)) + F.logsigmoid(-torch.bmm(self.around(far), c.unsqueeze(2)).squeeze(2)).sum(1)).mean()


chances = torch.from_numpy(np.arange(1, 31) ** 0.75)
for kind in (optim.SparseAdam, optim.SGD, optim.Adagrad):
    model = SkipGram(30, 8)
    optimizer = kind(list(model.parameters()), lr=0.05)
    for _ in range(4):
        centre, near = torch.randint(0, 30, (2, 16))
        optimizer.zero_grad()
        loss = model(centre, near, torch.multinomial(chances, 80, replacement=True).view(16, 5))
        loss.backward()
        g = model.centre.weight.grad
        print(kind.__name__, loss.item(), g.is_sparse, g.coalesce().indices().shape[1] == len(set(centre.tolist())))
        optimizer.step()
e = F.normalize(model.centre.weight.detach(), dim=1)
print((e @ e.t()).topk(3, dim=1).indices[:3], F.cosine_similarity(e[:1], e).argsort(descending=True)[:3])
bag = nn.EmbeddingBag(20, 4, mode="mean")
bag(torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4])).sum().backward()
print(bag.weight.grad.sum(0))
net = nn.Sequential(nn.Linear(10, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8))
optimizer = optim.SGD(net.parameters(), np.float64(0.05), momentum=0.9)
x, labels = torch.randn(6, 10), torch.tensor([0, 0, 1, 1, 2, 2])
margin = np.float32(0.2)
for _ in range(4):
    z = F.normalize(torch.cat([net(x + 0.1 * torch.randn_like(x)) for _ in range(2)]), dim=1)
    similar = z @ z.T / np.sqrt(0.25)
    similar = similar[~torch.eye(12, dtype=torch.bool)].view(12, 11)
    contrast = F.cross_entropy(similar, torch.cat([torch.arange(5, 11), torch.arange(6)]))
    distance = torch.cdist(z[:6], z[:6] + 1e-6)
    same = labels[None] == labels[:, None]
    hard = F.relu((distance * same).max(1)[0] - (distance + distance.max() * same).min(1)[0] + margin).mean()
    angle = F.linear(z[:6], z[6:]).clamp(-1 + 1e-6, 1 - 1e-6)
    bent = torch.where(angle > np.cos(np.pi - 0.5), angle * np.cos(0.5) - torch.sqrt(1 - angle ** 2) * np.sin(0.5), angle)
    loss = contrast + np.float64(0.5) * hard + bent.mean() / np.int64(2) + 2.0 ** -z.std() * np.float32(0.1)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(loss.item(), contrast.item(), hard.item())
