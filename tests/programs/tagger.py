"""Sequence tagging with a conditional random field on a two-way LSTM, and packed sequences of several lengths."""
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

torch.manual_seed(2)


class Tagger(nn.Module):
    def __init__(self, words, tags, width=8):
        super().__init__()
        self.embed = nn.Embedding(words, width, padding_idx=0)
        self.lstm = nn.LSTM(width, width // 2, num_layers=2, bidirectional=True, batch_first=True)
        self.emit = nn.Linear(width, tags)
        self.move = nn.Parameter(torch.randn(tags, tags) * 0.1)
        self.move.data[0, :] = -1e4

    def scores(self, x, lengths):
        packed = pack_padded_sequence(self.embed(x), lengths.cpu(), batch_first=True, enforce_sorted=False)
        y, (h, c) = self.lstm(packed)
        y, kept = pad_packed_sequence(y, batch_first=True, total_length=x.size(1))
        assert kept.tolist() == lengths.tolist() and h.shape == c.shape
        return self.emit(y)

    def loss(self, x, tags, lengths):
        total = 0
        for emitted, gold, n in zip(self.scores(x, lengths), tags, lengths):
            alpha, path = emitted[0], emitted[0, gold[0]]
            for t in range(1, n):
                alpha = torch.logsumexp(alpha.unsqueeze(1) + self.move, dim=0) + emitted[t]
                path = path + self.move[gold[t - 1], gold[t]] + emitted[t][gold[t]]
            total = total + torch.logsumexp(alpha, 0) - path
        return total / len(x)

    @torch.no_grad()
    def best(self, x, lengths):
        for emitted, n in zip(self.scores(x, lengths), lengths.tolist()):
            v, back = emitted[0], []
            for t in range(1, n):
                v, at = (v.view(-1, 1) + self.move).max(dim=0)
                v, back = v + emitted[t], [at] + back
            path = [v.argmax().item()]
            for at in back:
                path.insert(0, at[path[0]].item())
            yield path


sentences = [torch.randint(1, 15, (n,)) for n in (4, 7, 2, 5)]
lengths = torch.LongTensor([len(s) for s in sentences])
x = pad_sequence(sentences, batch_first=True)
tags = torch.where(x > 7, 1, 2) * (x > 0).long()
model = Tagger(15, 4)
optimizer = torch.optim.Adagrad(model.parameters(), lr=0.1, weight_decay=1e-4)
for epoch in range(5):
    optimizer.zero_grad()
    loss = model.loss(x, tags, lengths)
    loss.backward()
    optimizer.step()
    print(epoch, loss, model.embed.weight.grad[0].abs().sum().item())
print(list(model.best(x, lengths)))
