"""Models of many kinds, alone and together: compiled steps leave behind what eager ones do, and so do compiled models in eager
loops. The cases are like those of test_compile_zoo.py."""

from __future__ import annotations

import copy

import pytest
from compiled import agree
from zoo import batches, inputs, labels, mlp, numbers, table, trained

import flambeau as torch
from flambeau import nn, optim
from flambeau.nn import functional as F

CASES = {}
zoo = table(CASES)


# ---------------------------------------------------------------------------------------------------------------- models
@zoo()
def dropout_and_layer_norm():
    model = mlp(5, 7, 3, nn.Dropout(0.5), nn.LayerNorm(7))
    return trained(model, optim.Adam(model.parameters(), lr=0.01))


def switched(i, x, y):
    return lambda model, opt: (x, y, model.train(i % 3 < 2).training)


@zoo(calls=[switched(i, *b) for i, b in enumerate(batches(9))], most=2)
def batch_norm_in_both_modes():
    model = mlp(5, 7, 3, nn.BatchNorm1d(7))
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y, training):
        loss = F.cross_entropy(model(x), y)
        if training:
            opt.zero_grad()
            loss.backward()
            opt.step()
        return loss.detach()
    return step, model, opt


@zoo(calls=[(numbers(2, 3, 8, 8, seed=i), labels(2, 4, seed=i)) for i in range(6)])
def small_resnet():
    class Block(nn.Module):
        def __init__(self, channels):
            super().__init__()
            self.one, self.two = (nn.Conv2d(channels, channels, 3, padding=1, bias=False) for _ in range(2))
            self.norm, self.last = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)

        def forward(self, x):
            return F.relu(x + self.last(self.two(F.relu(self.norm(self.one(x))))))
    model = nn.Sequential(nn.Conv2d(3, 4, 3, stride=2, padding=1), Block(4), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                          nn.Linear(4, 4))
    return trained(model, optim.SGD(model.parameters(), lr=0.1, momentum=0.9))


@zoo(calls=[(labels(12, 9, seed=i).view(2, 6),) for i in range(6)])
def tied_language_model():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.body = nn.Embedding(9, 6), nn.GRU(6, 6, batch_first=True)
            self.head = nn.Linear(6, 9, bias=False)
            self.head.weight = self.table.weight

        def forward(self, ids):
            return self.head(self.body(self.table(ids))[0])
    model = Model()
    opt = optim.AdamW(model.parameters(), lr=0.01)

    def step(ids):
        opt.zero_grad()
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=[(labels(12, 9, seed=i).view(2, 6),) for i in range(6)])
def transformer_encoder():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
    model = nn.ModuleDict(dict(table=nn.Embedding(9, 8), body=nn.TransformerEncoder(layer, 2), head=nn.Linear(8, 9)))
    opt = optim.SGD(model.parameters(), lr=0.01)  # Adam would blow up the rounding of the keys' bias, whose gradient is zero
    mask = nn.Transformer.generate_square_subsequent_mask(5)

    def step(ids):
        opt.zero_grad()
        hidden = model["body"](model["table"](ids[:, :-1]), mask=mask, is_causal=True)
        loss = F.cross_entropy(model["head"](hidden).transpose(1, 2), ids[:, 1:])
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=[(numbers(2, 4, 8, seed=i), numbers(2, 3, 8, seed=i + 9)) for i in range(6)])
def whole_transformer():
    model = nn.Transformer(8, 2, 1, 1, 16, dropout=0.0, batch_first=True)
    opt = optim.SGD(model.parameters(), lr=0.01)

    def step(source, target):
        opt.zero_grad()
        loss = (model(source, target) - target).square().mean()
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=[(numbers(2, 6, 5, seed=i), labels(2, 3, seed=i)) for i in range(6)])
def bidirectional_lstm_with_projection():
    body, head = nn.LSTM(5, 4, 2, batch_first=True, bidirectional=True, dropout=0.2), nn.Linear(8, 3)
    model = nn.ModuleList([body, head])
    opt = optim.RMSprop(model.parameters(), lr=0.01)

    def step(x, y):
        opt.zero_grad()
        out, (h, c) = body(x)
        loss = F.cross_entropy(head(out[:, -1]), y) + c.square().mean()
        loss.backward()
        opt.step()
        return loss, h
    return step, model, opt


@zoo(calls=[(numbers(2, 6, 5, seed=i), labels(2, 3, seed=i)) for i in range(6)])
def cells_in_a_python_loop():
    cell, head = nn.LSTMCell(5, 4), nn.Linear(4, 3)
    model = nn.ModuleList([cell, head])
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x, y):
        opt.zero_grad()
        h = c = x.new_zeros(2, 4)
        for t in range(x.shape[1]):
            h, c = cell(x[:, t], (h, c))
        loss = F.cross_entropy(head(h), y)
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=[(numbers(2, 6, 5, seed=i),) for i in range(6)], most=2)
def state_carried_over():
    """Truncated back-propagation through time: the last state is the next call's first, kept in a buffer."""
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.GRU(5, 4, batch_first=True)
            self.register_buffer("state", torch.zeros(1, 2, 4))
            self.register_buffer("seen", torch.tensor(0))
    model = Model()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        opt.zero_grad()
        out, last = model.body(x, model.state)
        loss = out.square().mean()
        loss.backward()
        opt.step()
        model.state.copy_(last.detach())
        model.seen += 1
        return loss
    return step, model, opt


@zoo(calls=[(labels(7, 9, seed=i), torch.tensor([0, 3, 3]), labels(3, 3, seed=i)) for i in range(6)], goes="follow")
def embedding_bags():
    table, head = nn.EmbeddingBag(9, 5, mode="mean"), nn.Linear(5, 3)
    model = nn.ModuleList([table, head])
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(ids, offsets, y):
        opt.zero_grad()
        loss = F.cross_entropy(head(table(ids, offsets)), y)
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=[(labels(7, 9, seed=i),) for i in range(6)])
def sparse_embedding():
    table = nn.Embedding(9, 5, sparse=True)
    opt = optim.SparseAdam(table.parameters(), lr=0.1)

    def step(ids):
        opt.zero_grad()
        loss = table(ids).square().mean()
        loss.backward()
        opt.step()
        return loss
    return step, table, opt


@zoo()
def weight_norm():
    model = nn.Sequential(nn.utils.parametrizations.weight_norm(nn.Linear(5, 7)), nn.ReLU(), nn.Linear(7, 3))
    return trained(model, optim.Adam(model.parameters(), lr=0.01))


@zoo()
def spectral_norm():
    model = nn.Sequential(nn.utils.parametrizations.spectral_norm(nn.Linear(5, 7)), nn.ReLU(), nn.Linear(7, 3))
    return trained(model, optim.Adam(model.parameters(), lr=0.01))


@zoo()
def orthogonal_layer():
    model = nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(5, 5)), nn.ReLU(), nn.Linear(5, 3))
    return trained(model, optim.SGD(model.parameters(), lr=0.01))


@zoo(goes="follow")  # its weight is a new tensor at each call
def pruned_layer():
    model = mlp()
    nn.utils.prune.l1_unstructured(model[0], "weight", amount=0.4)
    return trained(model, optim.SGD(model.parameters(), lr=0.1))


@zoo()
def low_rank_adapter():
    class Adapter(nn.Module):
        def __init__(self, layer, rank=2):
            super().__init__()
            self.layer = layer.requires_grad_(False)
            self.down, self.up = nn.Linear(layer.in_features, rank, bias=False), nn.Linear(rank, layer.out_features, bias=False)
            nn.init.zeros_(self.up.weight)

        def forward(self, x):
            return self.layer(x) + 0.5 * self.up(self.down(x))
    model = nn.Sequential(Adapter(nn.Linear(5, 7)), nn.GELU(), Adapter(nn.Linear(7, 3)))
    return trained(model, optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01))


@zoo()
def mixture_of_experts():
    gate, experts = nn.Linear(5, 3), nn.ModuleList([nn.Linear(5, 3) for _ in range(3)])
    model = nn.ModuleList([gate, experts])
    opt = optim.Adam(model.parameters(), lr=0.01)

    def step(x, y):
        opt.zero_grad()
        top = gate(x).topk(2, dim=-1)
        weights = torch.zeros(x.shape[0], 3).scatter(1, top.indices, top.values.softmax(-1))
        out = (weights[:, :, None] * torch.stack([e(x) for e in experts], 1)).sum(1)
        loss = F.cross_entropy(out, y) + weights.mean(0).square().sum()
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=[(numbers(6, 5, seed=i), (numbers(6, 6, seed=i + 9) > 0).float()) for i in range(6)])
def graph_convolution():
    one, two = nn.Linear(5, 4), nn.Linear(4, 3)
    model = nn.ModuleList([one, two])
    opt = optim.Adam(model.parameters(), lr=0.01, weight_decay=1e-3)

    def step(x, links):
        opt.zero_grad()
        links = links + torch.eye(6)
        scale = links.sum(1).rsqrt()
        links = scale[:, None] * links * scale
        loss = F.log_softmax(links @ two(F.relu(links @ one(x))), -1)[:, 0].neg().mean()
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


# ------------------------------------------------------------------------------------------- several models or optimizers
@zoo(calls=inputs(8, 5))
def generator_and_critic():
    made = nn.Sequential(nn.Linear(2, 7), nn.Tanh(), nn.Linear(7, 5))
    critic = nn.Sequential(nn.Linear(5, 7), nn.LeakyReLU(0.2), nn.Linear(7, 1))
    ours, theirs = optim.Adam(made.parameters(), lr=0.01, betas=(0.5, 0.9)), optim.Adam(critic.parameters(), lr=0.01)

    def step(real):
        fake = made(torch.randn(8, 2))
        theirs.zero_grad()
        right = F.binary_cross_entropy_with_logits(critic(real), torch.ones(8, 1))
        wrong = F.binary_cross_entropy_with_logits(critic(fake.detach()), torch.zeros(8, 1))
        (right + wrong).backward()
        theirs.step()
        ours.zero_grad()
        fooled = F.binary_cross_entropy_with_logits(critic(fake), torch.ones(8, 1))
        fooled.backward()
        ours.step()
        return right + wrong, fooled
    return step, made, critic, ours, theirs


@zoo(calls=[(numbers(8, 4, seed=i), labels(8, 2, seed=i), numbers(8, seed=i), numbers(8, 4, seed=i + 9), i % 3 == 0)
            for i in range(9)], most=2)
def deep_q_learning():
    online = mlp(4, 8, 2)
    target = copy.deepcopy(online).requires_grad_(False)
    opt = optim.Adam(online.parameters(), lr=0.01)

    def step(state, action, reward, after, renew):
        value = online(state).gather(1, action[:, None]).squeeze(1)
        with torch.no_grad():
            goal = reward + 0.9 * target(after).max(1).values
        loss = F.smooth_l1_loss(value, goal)
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_value_(online.parameters(), 1.0)
        opt.step()
        if renew:
            target.load_state_dict(online.state_dict())
        return loss
    return step, online, target, opt


@zoo(calls=[(numbers(8, 4, seed=i), labels(8, 2, seed=i), numbers(8, seed=i), numbers(8, seed=i + 1), numbers(8, seed=i + 2))
            for i in range(6)])
def proximal_policy():
    body, actor, critic = nn.Linear(4, 6), nn.Linear(6, 2), nn.Linear(6, 1)
    model = nn.ModuleList([body, actor, critic])
    opt = optim.Adam(model.parameters(), lr=0.01, eps=1e-5)

    def step(state, action, old, gain, returns):
        hidden = torch.tanh(body(state))
        log_p = F.log_softmax(actor(hidden), -1)
        chosen = log_p.gather(1, action[:, None]).squeeze(1)
        ratio = (chosen - old).exp()
        gain = (gain - gain.mean()) / (gain.std() + 1e-8)
        policy = -torch.min(ratio * gain, ratio.clamp(0.8, 1.2) * gain).mean()
        value = F.mse_loss(critic(hidden).squeeze(-1), returns)
        entropy = -(log_p.exp() * log_p).sum(-1).mean()
        loss = policy + 0.5 * value - 0.01 * entropy
        opt.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        opt.step()
        return {"policy": policy.detach(), "value": value.detach(), "entropy": entropy.detach()}
    return step, model, opt


@zoo(calls=inputs(8, 5))
def variational_autoencoder():
    coder, decoder = nn.Linear(5, 4), nn.Linear(2, 5)
    model = nn.ModuleList([coder, decoder])
    opt = optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        mean, log_var = coder(x).chunk(2, -1)
        z = mean + torch.randn_like(mean) * (0.5 * log_var).exp()
        loss = F.mse_loss(decoder(z), x) - 0.5 * (1 + log_var - mean.pow(2) - log_var.exp()).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=inputs(8, 5))
def vector_quantization():
    coder, codes, decoder = nn.Linear(5, 3), nn.Embedding(6, 3), nn.Linear(3, 5)
    model = nn.ModuleList([coder, codes, decoder])
    opt = optim.Adam(model.parameters(), lr=0.01)

    def step(x):
        z = coder(x)
        picked = codes(torch.cdist(z, codes.weight).argmin(-1))
        through = z + (picked - z).detach()
        loss = F.mse_loss(decoder(through), x) + F.mse_loss(picked, z.detach()) + 0.25 * F.mse_loss(z, picked.detach())
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=inputs(8, 5))
def diffusion():
    model = mlp(6, 8, 5)
    opt = optim.AdamW(model.parameters(), lr=0.01)
    alphas = torch.cumprod(1 - torch.linspace(1e-4, 0.02, 20), 0)

    def step(x):
        t = torch.randint(0, 20, (x.shape[0],))
        noise = torch.randn_like(x)
        a = alphas[t][:, None]
        guess = model(torch.cat([a.sqrt() * x + (1 - a).sqrt() * noise, t[:, None] / 20], 1))
        loss = F.mse_loss(guess, noise)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=inputs(4, 5))
def contrastive_pairs():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(x):
        both = torch.cat([x + 0.1 * torch.randn_like(x), x + 0.1 * torch.randn_like(x)])
        z = F.normalize(model(both), dim=-1)
        scores = (z @ z.T / 0.5).masked_fill(torch.eye(8, dtype=torch.bool), float("-inf"))
        loss = F.cross_entropy(scores, torch.arange(8).roll(4))
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo(calls=[(numbers(8, 5, seed=i), numbers(8, 5, seed=i + 9), labels(8, 2, seed=i)) for i in range(6)])
def siamese_network():
    model = mlp()
    opt = optim.SGD(model.parameters(), lr=0.1)

    def step(a, b, alike):
        far = F.pairwise_distance(model(a), model(b))
        loss = (alike * far ** 2 + (1 - alike) * F.relu(1 - far) ** 2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss
    return step, model, opt


@zoo()
def distillation():
    teacher, student = mlp(5, 9), mlp(5, 4)
    teacher.eval()
    opt = optim.Adam(student.parameters(), lr=0.01)

    def step(x, y):
        with torch.no_grad():
            soft = F.softmax(teacher(x) / 4, -1)
        out = student(x)
        loss = F.kl_div(F.log_softmax(out / 4, -1), soft, reduction="batchmean") * 16 + F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        return loss
    return step, teacher, student, opt


@zoo(calls=inputs(8, 5))
def momentum_teacher():
    """Two views, a slow teacher, and a queue of old keys that is a buffer written in place."""
    student, teacher = mlp(), mlp()
    queue = numbers(6, 3)
    opt = optim.SGD(student.parameters(), lr=0.1)

    def step(x):
        q = F.normalize(student(x), dim=-1)
        with torch.no_grad():
            for a, b in zip(teacher.parameters(), student.parameters()):
                a.lerp_(b, 0.01)
            k = F.normalize(teacher(x), dim=-1)
        scores = torch.cat([(q * k).sum(-1, keepdim=True), q @ queue.T], 1)
        loss = F.cross_entropy(scores / 0.1, torch.zeros(8, dtype=torch.long))
        opt.zero_grad()
        loss.backward()
        opt.step()
        queue.copy_(torch.cat([k[:2], queue[:-2]]))
        return loss
    return step, student, teacher, queue, opt


@zoo()
def two_optimizers_for_one_model():
    model = mlp()
    weights = optim.SGD([p for p in model.parameters() if p.ndim > 1], lr=0.1, momentum=0.9)
    biases = optim.Adam([p for p in model.parameters() if p.ndim == 1], lr=0.01)

    def step(x, y):
        loss = F.cross_entropy(model(x), y)
        for opt in (weights, biases):
            opt.zero_grad()
        loss.backward()
        for opt in (weights, biases):
            opt.step()
        return loss
    return step, model, weights, biases


@pytest.mark.parametrize("name", CASES)
def test_training_steps(name):
    build, calls, most, goes = CASES[name]
    agree(build, calls, most, goes=goes)
