"""Recurrent language models over a word list: hidden state carried and detached, clipping, hand-made SGD, sampling."""
import io
import math

import torch
import torch.nn as nn

TEXT = "the cat saw the dog and the dog saw a bird and the bird flew over the cat while a cow slept on the hill . ".split() * 6


class Words(nn.Module):
    def __init__(self, kind, vocab, width, tied=False):
        super().__init__()
        self.kind, self.drop, self.embed = kind, nn.Dropout(0.2), nn.Embedding(vocab, width)
        self.rnn = getattr(nn, kind)(width, width, 2, dropout=0.2)
        self.out = nn.Linear(width, vocab)
        if tied:
            self.out.weight = self.embed.weight
        nn.init.uniform_(self.embed.weight, -0.1, 0.1)

    def forward(self, tokens, state):
        y, state = self.rnn(self.drop(self.embed(tokens)), state)
        return self.out(self.drop(y)).view(-1, self.out.out_features).log_softmax(-1), state

    def begin(self, batch):
        zeros = next(self.parameters()).new_zeros(2, batch, self.rnn.hidden_size)
        return (zeros, zeros.clone()) if self.kind == "LSTM" else zeros


def detached(state):
    return state.detach() if isinstance(state, torch.Tensor) else tuple(detached(s) for s in state)


vocab = {w: i for i, w in enumerate(dict.fromkeys(TEXT))}
stream = torch.tensor([vocab[w] for w in TEXT]).type(torch.int64)
columns = stream.narrow(0, 0, len(stream) // 4 * 4).view(4, -1).t().contiguous()
for kind, tied in (("LSTM", True), ("GRU", False), ("RNN", False)):
    torch.manual_seed(11)
    model = Words(kind, len(vocab), 12, tied)
    state = model.begin(4)
    for start in range(0, columns.size(0) - 8, 7):
        x, y = columns[start:start + 7], columns[start + 1:start + 8].reshape(-1)
        model.zero_grad()
        scores, state = model(x, detached(state))
        loss = nn.NLLLoss()(scores, y)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.25)
        for p in model.parameters():
            p.data.add_(p.grad, alpha=-4.0)
        print("%s %d loss %.5f ppl %.3f" % (kind, start, loss.item(), math.exp(loss.item())))
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    model = torch.load(file, weights_only=False).eval()
    model.rnn.flatten_parameters()
    word, state, names = torch.zeros(1, 1, dtype=torch.long), model.begin(1), list(vocab)
    with torch.no_grad():
        for _ in range(8):
            scores, state = model(word, state)
            word.fill_(torch.multinomial(scores.squeeze().div(0.9).exp(), 1)[0])
            print(names[word], end=" ")
    print()
