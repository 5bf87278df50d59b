import random
from collections import Counter
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.optim as optim

torch.manual_seed(1); random.seed(1); np.random.seed(1)
CONTEXT_SIZE, EMBEDDING_DIM = 2, 10
test_sentence = """When forty winters shall besiege thy brow, And dig deep trenches in thy beauty's field, Thy youth's proud livery so
gazed on now, Will be a totter'd weed of small worth held""".split()
vocab = sorted(set(test_sentence))
word_to_ix = {word: i for i, word in enumerate(vocab)}
ngrams = [([test_sentence[i - j - 1] for j in range(CONTEXT_SIZE)], test_sentence[i]) for i in range(CONTEXT_SIZE, len(test_sentence))]


class NGram(nn.Module):
    def __init__(self, vocab_size, embedding_dim, context_size):
        super().__init__()
        self.embeddings = nn.Embedding(vocab_size, embedding_dim)
        self.linear1 = nn.Linear(context_size * embedding_dim, 32)
        self.linear2 = nn.Linear(32, vocab_size)

    def forward(self, inputs):
        embeds = self.embeddings(inputs).view((1, -1))
        out = F.relu(self.linear1(embeds))
        return F.log_softmax(self.linear2(out), dim=1)


losses = []
model = NGram(len(vocab), EMBEDDING_DIM, CONTEXT_SIZE)
optimizer = optim.SGD(model.parameters(), lr=0.001)
for epoch in range(2):
    total_loss = 0
    for context, target in ngrams:
        context_idxs = torch.tensor([word_to_ix[w] for w in context], dtype=torch.long)
        model.zero_grad()
        log_probs = model(context_idxs)
        loss = nn.NLLLoss()(log_probs, torch.tensor([word_to_ix[target]], dtype=torch.long))
        loss.backward()
        optimizer.step()
        total_loss += loss.item()
    losses.append(total_loss)
print(losses)
print(model.embeddings.weight[word_to_ix["beauty's"]])


class SkipGram(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.u = nn.Embedding(n, d, sparse=True)
        self.v = nn.Embedding(n, d, sparse=True)
        self.u.weight.data.uniform_(-0.5 / d, 0.5 / d)
        self.v.weight.data.uniform_(-0, 0)

    def forward(self, pos_u, pos_v, neg_v):
        emb_u, emb_v = self.u(pos_u), self.v(pos_v)
        score = F.logsigmoid(torch.mul(emb_u, emb_v).squeeze().sum(dim=1))
        neg = torch.bmm(self.v(neg_v), emb_u.unsqueeze(2)).squeeze()
        neg = F.logsigmoid(-1 * neg)
        return -1 * (torch.sum(score) + torch.sum(neg))


freq = np.array([1.0] * len(vocab)); freq = freq ** 0.75
weights = torch.from_numpy(freq / freq.sum())
for kind in (optim.SparseAdam, optim.SGD, optim.Adagrad):
    sg = SkipGram(len(vocab), 8)
    opt = kind(list(sg.parameters()), lr=0.05)
    for step in range(4):
        u, v = torch.randint(0, len(vocab), (2, 16))
        neg = torch.multinomial(weights, 16 * 5, replacement=True).view(16, 5)
        opt.zero_grad()
        loss = sg(u, v, neg)
        loss.backward()
        print(sg.u.weight.grad.is_sparse, sg.u.weight.grad.coalesce().indices().shape[1] == len(set(u.tolist())), loss.item())
        opt.step()
e = F.normalize(sg.u.weight.detach(), dim=1)
sim = e @ e.t()
print(sim.topk(3, dim=1).indices[:3], sim.diagonal().mean())
print(F.cosine_similarity(e[0:1], e).argsort(descending=True)[:3])


class GloVe(nn.Module):
    def __init__(self, n, d):
        super().__init__()
        self.wi, self.wj, self.bi, self.bj = nn.Embedding(n, d), nn.Embedding(n, d), nn.Embedding(n, 1), nn.Embedding(n, 1)
        for w in (self.wi, self.wj): w.weight.data.uniform_(-1, 1)
        for b in (self.bi, self.bj): b.weight.data.zero_()

    def forward(self, i, j):
        return torch.sum(self.wi(i) * self.wj(j), dim=1) + self.bi(i).squeeze() + self.bj(j).squeeze()


co = torch.randint(1, 100, (12, 12)).float()
i, j = torch.meshgrid(torch.arange(12), torch.arange(12), indexing='ij')
i, j = i.flatten(), j.flatten()
g = GloVe(12, 5); opt = optim.Adagrad(g.parameters(), lr=0.05)
for _ in range(5):
    opt.zero_grad()
    x = co[i, j]
    wx = torch.min((x / 100) ** 0.75, torch.ones_like(x))
    loss = torch.mean(wx * F.mse_loss(g(i, j), torch.log(x), reduction='none'))
    loss.backward(); opt.step(); print(loss.item())
bag = nn.EmbeddingBag(20, 4, mode='mean')
out = bag(torch.tensor([1, 2, 4, 5, 4, 3, 2, 9]), torch.tensor([0, 4]))
out.sum().backward(); print(out, bag.weight.grad.sum(0))
