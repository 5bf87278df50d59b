"""The training step of every example, compiled against eager for twenty steps: the same losses to 1e-5."""

from __future__ import annotations

import importlib
import random
import sys
import warnings
from pathlib import Path

import pytest
from compiled import programs, way, why

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim

EXAMPLES = Path(__file__).parent.parent / "examples"
STEPS = 20


@pytest.fixture(scope="module", autouse=True)
def beside_the_examples():
    """The examples import `common` from their own folder, as they do when started as programs."""
    sys.path.insert(0, str(EXAMPLES))
    yield
    sys.path.remove(str(EXAMPLES))


def digits_mlp(module):
    x, y, _, _ = importlib.import_module("common").split_digits(torch)
    w1, b1, w2, b2 = weights = [module.parameter(64, 48), torch.zeros(48, requires_grad=True), module.parameter(48, 10),
                                torch.zeros(10, requires_grad=True)]

    def step(x, y):
        loss = -((x @ w1 + b1).tanh() @ w2 + b2).log_softmax(1).gather(1, y.unsqueeze(1)).mean()
        loss.backward()
        with torch.no_grad():
            for p in weights:
                p -= 0.5 * p.grad
                p.grad = None
        return loss
    picks = [torch.randint(0, len(x), (128,)) for _ in range(STEPS)]
    return step, [(x[pick], y[pick]) for pick in picks], None


def two_layer_by_hand(module):
    x, y, w1, w2 = module.data_and_weights(0)

    def step(x, y):
        hidden = x @ w1
        active = hidden.clamp(min=0)
        error = active @ w2 - y
        grad_out = 2 * error / error.numel()
        grad_w2 = active.t() @ grad_out
        grad_w1 = x.t() @ (grad_out @ w2.t() * (hidden > 0))
        w1.sub_(0.3 * grad_w1)
        w2.sub_(0.3 * grad_w2)
        return (error ** 2).mean()
    return step, [(x, y)] * STEPS, None


def two_layer_net(module):
    x, y, w1, w2 = module.data_and_weights(0)
    w1.requires_grad_()
    w2.requires_grad_()

    def step(x, y):
        loss = ((module.Rectify.apply(x @ w1) @ w2 - y) ** 2).mean()
        loss.backward()
        with torch.no_grad():
            for w in (w1, w2):
                w -= 0.3 * w.grad
                w.grad = None
        return loss
    return step, [(x, y)] * STEPS, None


def usual(model, optimizer, loss_of, clip=None):
    """The step that most examples share."""
    def step(*batch):
        loss = loss_of(model, *batch)
        optimizer.zero_grad()
        loss.backward()
        if clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), clip)
        optimizer.step()
        return loss
    return step


def polynomial_regression(module):
    x = torch.linspace(-3.14, 3.14, 2000)
    powers = x.unsqueeze(-1).pow(torch.tensor([1, 2, 3]))
    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1))
    optimizer = optim.RMSprop(model.parameters(), lr=1e-2)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS, eta_min=1e-5)
    loss_of = nn.MSELoss()
    return usual(model, optimizer, lambda m, x, y: loss_of(m(x), y)), [(powers, x.sin())] * STEPS, schedule


def word2vec(module):
    """With sparse gradients."""
    model = module.SkipGram(50, 8)
    optimizer = optim.SparseAdam(model.parameters(), lr=4e-3)
    batches = [(torch.randint(0, 50, (32,)), torch.randint(0, 50, (32,)), torch.randint(0, 50, (32, 6))) for _ in range(STEPS)]
    return usual(model, optimizer, lambda m, *b: m(*b)), batches, None


def digits_cnn(module):
    x, y, _, _ = importlib.import_module("common").split_digits(torch)
    x = x.view(-1, 1, 8, 8)
    model = module.Net()
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=100)
    return (usual(model, optimizer, lambda m, x, y: F.cross_entropy(m(x), y)),
            [(x[i * 50:i * 50 + 50], y[i * 50:i * 50 + 50]) for i in range(STEPS)], schedule)


def texts(length, batch, alphabet):
    data = (torch.arange(4000) ** 2 // 7 + torch.arange(4000) // 3) % alphabet
    rows = [data[torch.randint(0, len(data) - length, (batch, 1)) + torch.arange(length + 1)] for _ in range(STEPS)]
    return [(r[:, :-1], r[:, 1:]) for r in rows]


def char_lstm(module):
    model = module.CharLSTM(30, width=32)
    optimizer = optim.Adam(model.parameters(), lr=6e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=STEPS)
    return (usual(model, optimizer, lambda m, x, y: F.cross_entropy(m(x)[0].flatten(0, 1), y.flatten()), 1.0), texts(16, 4, 30),
            schedule)


def char_gpt(module):
    model = module.GPT(30, 16, width=32)
    optimizer = module.make_optimizer(model, 4e-3)
    schedule = optim.lr_scheduler.LambdaLR(optimizer, lambda step: module.rate_factor(step, STEPS, 5))
    return (usual(model, optimizer, lambda m, x, y: F.cross_entropy(m(x).flatten(0, 1), y.flatten()), 1.0), texts(16, 4, 30),
            schedule)


def vae(module):
    images, _ = importlib.import_module("common").load_digits(torch)
    model = module.VAE()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    def loss_of(m, images):
        logits, mean, log_variance = m(images)
        return module.loss_of(logits, images, mean, log_variance)
    return usual(model, optimizer, loss_of), [(images[i * 80:i * 80 + 80],) for i in range(STEPS)], None


def graph_network(module):
    edges = module.graph()
    x = torch.eye(module.MEMBERS)
    sides = torch.tensor([0 if i in module.WITH_INSTRUCTOR else 1 for i in range(module.MEMBERS)])
    known = torch.tensor([0, 33])
    model = module.Net()
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)
    return usual(model, optimizer, lambda m, x: F.cross_entropy(m(x, *edges)[known], sides[known])), [(x,)] * STEPS, None


def reinforce(module):
    """Rounds are of any length: what was met is cut to one of two sizes, which makes two programs."""
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)
    batches = []
    for i in range(STEPS):
        states, actions, owners, _ = module.play(policy, 10, random.Random(i))
        n = 64 if i % 3 else 96
        rewards = module.rewards_to_come(owners, 10)
        batches.append((torch.tensor(states[:n]), torch.tensor(actions[:n]), torch.tensor(rewards[:n])))

    def loss_of(policy, states, actions, reward):
        advantage = (reward - reward.mean()) / (reward.std() + 1e-8)
        taken = F.log_softmax(policy(states), dim=1).gather(1, actions.unsqueeze(1)).squeeze(1)
        return -(taken * advantage).mean()
    return usual(policy, optimizer, loss_of), batches, None


CASES = [digits_mlp, two_layer_by_hand, two_layer_net, polynomial_regression, word2vec, digits_cnn, char_lstm, char_gpt, vae,
         graph_network, reinforce]


def test_every_example_is_here():
    assert {p.stem for p in EXAMPLES.glob("*.py")} - {"common"} <= {case.__name__ for case in CASES}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_compiled_steps_give_the_same_losses(case):
    module = importlib.import_module({"two_layer_by_hand": "two_layer_net"}.get(case.__name__, case.__name__))
    curves = []
    for wrap in (lambda step: step, torch.compile):
        torch.manual_seed(0)
        step, batches, schedule = case(module)
        fn = wrap(step)
        losses = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for batch in batches:
                losses.append(fn(*batch).item())
                if schedule is not None:
                    schedule.step()
        curves.append((losses, torch.get_rng_state().tolist()))
    # Relative to the largest of the curve: reinforce's first loss is what is left of terms that cancel each other.
    assert curves[1][0] == pytest.approx(curves[0][0], rel=1e-5, abs=1e-5 * max(map(abs, curves[0][0])))
    assert curves[1][1] == curves[0][1]
    assert not [w for w in caught if "runs eagerly" in str(w.message)]
    assert way(fn) == "skip" and programs(fn) == (2 if case is reinforce else 1), why(fn)
