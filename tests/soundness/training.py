"""Whole steps as people write them: meters, queues, replay, targets, annealing, curricula, adversaries, searches."""

from __future__ import annotations

import collections
import copy
import itertools
import math
import random
import types

from soundness.world import F, Thing, around, each, final, fit, line, nn, optim, put, task, torch, vec


# ------------------------------------------------------------------------------------------------------------- watching it
class Meter:
    """A running average as every second repository has one."""

    def __init__(self):
        self.reset()

    def reset(self):
        self.sum, self.count, self.last = 0.0, 0, None

    def update(self, value, n=1):
        self.last, self.sum, self.count = value, self.sum + value * n, self.count + n

    @property
    def average(self):
        return self.sum / max(self.count, 1)


def meter(compile):
    net, opt, x, y = line()
    losses = Meter()

    @compile
    def step():
        loss = fit(net, opt, x, y)
        losses.update(loss.item(), len(x))
        return loss
    for n in range(7):
        if n == 4:
            losses.reset()
        yield step(), losses.average, losses.count


def meter_of_tensors(compile):
    """The average stays a tensor until somebody asks."""
    net, opt, x, y = line()
    losses = Thing(total=torch.zeros(()), count=0)

    @compile
    def step():
        loss = fit(net, opt, x, y)
        losses.total += loss.detach()
        losses.count += 1
        return loss
    for n in range(7):
        step()
        if n % 3 == 2:
            yield losses.total / losses.count
            losses.total, losses.count = torch.zeros(()), 0


def accuracy_counted(compile):
    net, opt, x, _ = task(lambda ps: optim.SGD(ps, lr=0.1))
    labels, box = torch.tensor([[0.0], [1.0], [1.0], [0.0]]), Thing(right=0, seen=0)

    @compile
    def step():
        loss = fit(net, opt, x, labels)
        with torch.no_grad():
            box.right += ((net(x) > 0.5) == (labels > 0.5)).sum().item()
            box.seen += len(x)
        return loss
    for _ in range(6):
        yield step(), box.right, box.seen


def history_and_best(compile):
    net, opt, x, y = line()
    history = collections.defaultdict(list)

    @compile
    def step(epoch):
        loss = fit(net, opt, x, y)
        history["loss"].append(loss.detach())
        history["epoch"].append(epoch)
        if len(history["loss"]) == 1 or loss < min(history["loss"][:-1]):
            history["best"] = [epoch]
        return loss
    for epoch in range(6):
        yield step(epoch)
    yield dict(history)


def stopping_early(compile):
    net, opt, x, y = line(lambda ps: optim.SGD(ps, lr=0.9))
    box = Thing(best=math.inf, patience=2, bad=0, stopped=False)

    @compile
    def step():
        if box.stopped:
            return None
        loss = fit(net, opt, x, y)
        value = float(loss.detach())
        box.bad = 0 if value < box.best - 0.05 else box.bad + 1
        box.best = min(box.best, value)
        box.stopped = box.bad >= box.patience
        return loss
    for _ in range(10):
        yield step(), box.bad, box.stopped
    yield final(net)


def printing_every_so_often(compile):
    net, opt, x, y = line()
    box = Thing(n=0, every=3)

    @compile
    def step():
        box.n += 1
        loss = fit(net, opt, x, y)
        if box.n % box.every == 0:
            print(f"step {box.n}: loss {loss.item():.3f}, rate {opt.param_groups[0]['lr']}")
        return loss
    return around(step, put(box, every=2), args=())


def trainer_with_callbacks(compile):
    class Trainer:
        def __init__(self):
            self.net, self.opt, self.x, self.y = line()
            self.n, self.callbacks, self.log = 0, [], []

        def step(self):
            for callback in self.callbacks:
                callback.before(self)
            loss = fit(self.net, self.opt, self.x, self.y)
            self.n += 1
            for callback in self.callbacks:
                callback.after(self, loss)
            return loss

    class Decay:
        def before(self, trainer):
            trainer.opt.param_groups[0]["lr"] = 0.1 * 0.5 ** trainer.n

        def after(self, trainer, loss):
            trainer.log.append((trainer.n, loss.detach()))
    trainer = Trainer()
    yield from around(compile(trainer.step), lambda: trainer.callbacks.append(Decay()), trainer.callbacks.clear, args=())
    yield trainer.n, trainer.log, final(trainer.net)


# ----------------------------------------------------------------------------------------------------- what comes in
def mixed_batches(compile):
    net, opt, x, y = line()
    box = Thing(alpha=0.4)

    @compile
    def step():
        share = random.betavariate(box.alpha, box.alpha)
        order = torch.randperm(len(x))
        return fit(net, opt, share * x + (1 - share) * x[order], share * y + (1 - share) * y[order])
    yield from around(step, put(box, alpha=2.0), args=())
    yield final(net)


def augmented_by_chance(compile):
    net, opt, x, y = line()
    steps = [lambda x: x, lambda x: x.flip(1), lambda x: x + 0.1 * torch.randn_like(x), lambda x: x * random.uniform(0.8, 1.2)]

    @compile
    def step():
        return fit(net, opt, random.choice(steps)(x), y)
    yield from each(step, calls=8)
    yield final(net)


def curriculum(compile):
    net, opt, x, y = line()
    box = Thing(n=0)

    @compile
    def step():
        box.n += 1
        k = min(4, 1 + box.n // 2)
        return fit(net, opt, x[:k], y[:k])
    yield from each(step, calls=8)
    yield final(net)


def replay_memory(compile):
    net, opt, x, y = line()
    memory, source = collections.deque(maxlen=5), random.Random(3)

    @compile
    def step(row, target):
        memory.append((row, target))
        if len(memory) < 3:
            return None
        rows, targets = zip(*source.sample(list(memory), 2))
        return fit(net, opt, torch.stack(rows), torch.stack(targets))
    for n in range(9):
        yield step(x[n % 4] * n, y[n % 4] * n)
    yield final(net), len(memory)


def queue_of_negatives(compile):
    """A ring of past results, with a Python number that says where to write."""
    net = nn.Linear(3, 3)
    box = Thing(queue=torch.zeros(6, 3), at=0)

    @compile
    def step(x):
        with torch.no_grad():
            keys = F.normalize(net(x), dim=1)
        score = (keys @ box.queue.t()).sum()
        box.queue[box.at:box.at + len(x)] = keys
        box.at = (box.at + len(x)) % len(box.queue)
        return score
    for n in range(8):
        yield step(torch.arange(6.0).reshape(2, 3) + n), box.at
    yield box.queue


def labels_smoothed(compile):
    net, opt, x, _ = task(lambda ps: optim.SGD(ps, lr=0.1))
    net[2], labels, box = nn.Linear(3, 3), torch.tensor([0, 1, 2, 0]), Thing(smooth=0.0)
    opt = optim.SGD(net.parameters(), lr=0.1)

    @compile
    def step():
        opt.zero_grad()
        loss = F.cross_entropy(net(x), labels, label_smoothing=box.smooth)
        loss.backward()
        opt.step()
        return loss
    yield from around(step, put(box, smooth=0.3), args=())
    yield final(net)


# ------------------------------------------------------------------------------------------------------- what is annealed
def temperature_annealed(compile):
    net, opt, x, y = line()
    box = Thing(temperature=1.0)

    @compile
    def step():
        box.temperature = max(0.1, box.temperature * 0.7)
        return fit(net, opt, x / box.temperature, y)
    for _ in range(8):
        yield step(), box.temperature
    yield final(net)


def weight_of_a_term_warmed_up(compile):
    net, opt, x, y = line()
    count = itertools.count()

    @compile
    def step():
        opt.zero_grad()
        weight = min(1.0, next(count) / 4)
        loss = ((net(x) - y) ** 2).mean() + weight * net.weight.abs().sum()
        loss.backward()
        opt.step()
        return loss
    yield from each(step, calls=7)
    yield final(net), next(count)


def sampling_scheduled(compile):
    """Teacher forcing: chance decides at each position."""
    cell, box = nn.RNNCell(3, 3), Thing(forced=1.0)

    def run(x):
        h = out = torch.zeros(3)
        for t in range(3):
            h = cell(x * t if random.random() < box.forced else out, h)
            out = h * 2.0
        return out
    return around(compile(run), put(box, forced=0.5), put(box, forced=0.0))


def reversed_gradient_with_a_growing_factor(compile):
    class Reverse(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, factor):
            ctx.factor = factor
            return x.clone()

        @staticmethod
        def backward(ctx, grad):
            return -ctx.factor * grad, None
    net, opt, x, y = task()
    box = Thing(n=0)

    @compile
    def step():
        opt.zero_grad()
        box.n += 1
        factor = 2 / (1 + math.exp(-box.n / 3)) - 1
        loss = ((net[2](Reverse.apply(net[1](net[0](x)), factor)) - y) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    yield from each(step)
    yield final(net)


def layers_thawed_one_by_one(compile):
    net, opt, x, y = task()
    net.requires_grad_(False)
    box = Thing(n=0)

    @compile
    def step():
        box.n += 1
        if box.n % 3 == 1 and box.n < 7:
            net[2 if box.n == 1 else 0].requires_grad_(True)
        return fit(net, opt, x, y)
    yield from each(step, calls=8)
    yield final(net)


# ------------------------------------------------------------------------------------------------------- more than one net
def target_network(compile):
    net, opt, x, y = line()
    target, box = copy.deepcopy(net), Thing(n=0, every=3)

    @compile
    def step():
        opt.zero_grad()
        with torch.no_grad():
            goal = y + 0.9 * target(x)
        loss = ((net(x) - goal) ** 2).mean()
        loss.backward()
        opt.step()
        box.n += 1
        if box.n % box.every == 0:
            target.load_state_dict(net.state_dict())
        return loss
    yield from around(step, put(box, every=2), args=(), every=4)
    yield final(net), target.state_dict()


def teacher_that_follows(compile):
    net, opt, x, y = line()
    teacher, box = copy.deepcopy(net).requires_grad_(False), Thing(n=0)

    @compile
    def step():
        opt.zero_grad()
        loss = ((net(x) - y) ** 2).mean() + ((net(x) - teacher(x)) ** 2).mean()
        loss.backward()
        opt.step()
        box.n += 1
        decay = min(0.99, (1 + box.n) / (10 + box.n))
        with torch.no_grad():
            for t, p in zip(teacher.parameters(), net.parameters()):
                t.lerp_(p, 1 - decay)
        return loss
    yield from each(step)
    yield final(net), teacher.state_dict()


def adversaries(compile):
    maker, judge = nn.Linear(3, 3), nn.Linear(3, 1)
    one, two = optim.Adam(maker.parameters(), lr=0.05), optim.Adam(judge.parameters(), lr=0.05)
    box = Thing(rounds=1)

    @compile
    def step(real):
        for _ in range(box.rounds):
            two.zero_grad()
            fake = maker(torch.randn(4, 3)).detach()
            loss = F.softplus(-judge(real)).mean() + F.softplus(judge(fake)).mean()
            loss.backward()
            two.step()
        one.zero_grad()
        trick = F.softplus(-judge(maker(torch.randn(4, 3)))).mean()
        trick.backward()
        one.step()
        return loss, trick
    yield from around(step, put(box, rounds=2), args=(torch.ones(4, 3),))
    yield final(maker), final(judge)


def sharpness_aware(compile):
    net, opt, x, y = line()
    box = Thing(radius=0.05)

    @compile
    def step():
        fitted = ((net(x) - y) ** 2).mean()
        fitted.backward()
        norm = sum((p.grad ** 2).sum() for p in net.parameters()).sqrt()
        moves = [p.grad * (box.radius / (norm + 1e-6)) for p in net.parameters()]
        with torch.no_grad():
            for p, move in zip(net.parameters(), moves):
                p.add_(move)
        opt.zero_grad()
        ((net(x) - y) ** 2).mean().backward()
        with torch.no_grad():
            for p, move in zip(net.parameters(), moves):
                p.sub_(move)
        opt.step()
        opt.zero_grad()
        return fitted
    yield from around(step, put(box, radius=0.5), args=())
    yield final(net)


def search_along_a_line(compile):
    net, _, x, y = line()
    tries = []

    @compile
    def step():
        loss = ((net(x) - y) ** 2).mean()
        grads = torch.autograd.grad(loss, list(net.parameters()))
        rate = 4.0
        with torch.no_grad():
            while True:
                for p, g in zip(net.parameters(), grads):
                    p.sub_(g, alpha=rate)
                if ((net(x) - y) ** 2).mean() < loss or rate < 1e-3:
                    break
                for p, g in zip(net.parameters(), grads):
                    p.add_(g, alpha=rate)
                rate /= 2
        tries.append(rate)
        return loss
    yield from each(step)
    yield net.state_dict(), tries


def policy_with_rewards(compile):
    net = nn.Linear(3, 2)
    opt = optim.SGD(net.parameters(), lr=0.1)
    box = Thing(baseline=0.0)

    @compile
    def step(x):
        opt.zero_grad()
        found = torch.distributions.Categorical(logits=net(x))
        action = found.sample()
        reward = 1.0 if action.item() == 1 else -1.0
        loss = -found.log_prob(action) * (reward - box.baseline)
        box.baseline = 0.9 * box.baseline + 0.1 * reward
        loss.backward()
        opt.step()
        return loss, action
    yield from each(step, vec(), calls=8)
    yield final(net), box.baseline


def clusters(compile):
    points = torch.arange(12.0).reshape(6, 2) % 5
    box = Thing(centres=points[:2].clone(), moved=[])

    @compile
    def step():
        nearest = ((points[:, None] - box.centres) ** 2).sum(-1).argmin(1)
        fresh = torch.stack([points[nearest == k].mean(0) if (nearest == k).any() else box.centres[k] for k in range(2)])
        box.moved.append(float((fresh - box.centres).abs().max()))
        box.centres = fresh
        return nearest
    yield from each(step)
    yield box.centres, box.moved


def state_of_a_sequence_carried(compile):
    cell, head = nn.RNNCell(3, 3), nn.Linear(3, 1)
    opt = optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
    box = Thing(h=None)

    @compile
    def step(x):
        opt.zero_grad()
        box.h = cell(x, None if box.h is None else box.h.detach())
        loss = (head(box.h) ** 2).mean()
        loss.backward()
        opt.step()
        return loss
    yield from around(step, put(box, h=None), args=(vec()[None],))
    yield final(cell), box.h


def generation_with_a_cache(compile):
    torch.manual_seed(1)
    table, head = nn.Embedding(5, 3), nn.Linear(3, 5)

    def generate(prompt, length):
        cache, said = [], list(prompt)
        for n in range(length):
            cache.append(table(torch.tensor(said[n])))
            if n + 1 >= len(said):
                said.append(int(head(torch.stack(cache).mean(0)).argmax()))
        return said, len(cache)
    generate = compile(generate)
    for prompt, length in (([1], 4), ([1], 4), ([2, 3], 4), ([1], 5), ([4], 4), ([2, 3], 4)):
        yield generate(prompt, length)


def config_as_a_tree(compile):
    config = types.SimpleNamespace(loss=types.SimpleNamespace(kind="square", weight=1.0), opt={"clip": [None]})
    net, opt, x, y = line()

    @compile
    def step():
        opt.zero_grad()
        error = net(x) - y
        loss = (error ** 2 if config.loss.kind == "square" else error.abs()).mean() * config.loss.weight
        loss.backward()
        if config.opt["clip"][0] is not None:
            nn.utils.clip_grad_norm_(net.parameters(), config.opt["clip"][0])
        opt.step()
        return loss
    yield from around(step, put(config.loss, weight=0.5), put(config.loss, kind="absolute"),
                      lambda: config.opt["clip"].__setitem__(0, 0.01), args=())
    yield final(net)


def steps_unrolled_in_a_call(compile):
    net, opt, x, y = line()
    box = Thing(steps=2)
    f = compile(lambda: [fit(net, opt, x, y).detach() for _ in range(box.steps)])
    yield from around(f, put(box, steps=3), args=())
    yield final(net)


def saved_and_resumed_in_a_step(compile):
    net, opt, x, y = line(lambda ps: optim.Adam(ps, lr=0.1))
    box = Thing(n=0, saved=None)

    @compile
    def step():
        box.n += 1
        if box.n == 3:
            box.saved = copy.deepcopy((net.state_dict(), opt.state_dict()))
        if box.n == 6:
            net.load_state_dict(box.saved[0]), opt.load_state_dict(box.saved[1])
        return fit(net, opt, x, y)
    yield from each(step, calls=8)
    yield final(net, opt)


def validation_between(compile):
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Linear(3, 1))
    opt = optim.SGD(net.parameters(), lr=0.1)
    x = torch.arange(12.0).reshape(4, 3) / 12
    y = x.sum(1, keepdim=True)

    @compile
    @torch.no_grad()
    def validate():
        was, net.training = net.training, False
        net.eval()
        try:
            return ((net(x) - y) ** 2).mean()
        finally:
            net.train(was)
    step = compile(lambda: fit(net, opt, x, y))
    for _ in range(5):
        yield step(), validate(), net.training, net[1].training
