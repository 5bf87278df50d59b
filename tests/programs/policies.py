"""Reinforcement learning on a toy: replay and a target network, actor and critic, clipped ratios."""
import random
from collections import deque, namedtuple

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical, MultivariateNormal, Normal, kl_divergence

random.seed(0)
torch.manual_seed(0)
world = np.random.RandomState(0)
Step = namedtuple("Step", ("state", "action", "after", "reward"))
online, target = (nn.Sequential(nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 2)) for _ in range(2))
target.load_state_dict(online.state_dict())
optimizer = torch.optim.AdamW(online.parameters(), lr=1e-2, amsgrad=True)
memory, state = deque(maxlen=50), torch.tensor(world.randn(4), dtype=torch.float32).unsqueeze(0)
for t in range(24):
    with torch.no_grad():
        action = online(state).max(1).indices.view(1, 1) if random.random() > 0.3 else torch.tensor([[random.randrange(2)]])
    after = None if t % 8 == 7 else torch.from_numpy(world.randn(4)).float()[None]
    memory.append(Step(state, action, after, torch.tensor([float(action.item())])))
    state = after if after is not None else torch.zeros(1, 4)
    if len(memory) < 8:
        continue
    batch = Step(*zip(*random.sample(memory, 8)))
    alive = torch.tensor([s is not None for s in batch.after], dtype=torch.bool)
    value = torch.zeros(8)
    with torch.no_grad():
        value[alive] = target(torch.cat([s for s in batch.after if s is not None])).max(1).values
    chosen = online(torch.cat(batch.state)).gather(1, torch.cat(batch.action))
    loss = nn.SmoothL1Loss()(chosen, (value * 0.99 + torch.cat(batch.reward)).unsqueeze(1))
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(online.parameters(), 100)
    optimizer.step()
    mixed = target.state_dict()
    for key, new in online.state_dict().items():
        mixed[key] = new * 0.05 + mixed[key] * 0.95
    target.load_state_dict(mixed)
    print("%.6f" % loss)


class ActorCritic(nn.Module):
    def __init__(self, continuous):
        super().__init__()
        self.continuous, self.body = continuous, nn.Linear(4, 12)
        self.actor, self.critic = nn.Linear(12, 2), nn.Linear(12, 1)
        self.register_buffer("variance", torch.full((2,), 0.25))

    def forward(self, state):
        h = torch.tanh(self.body(state))
        a = self.actor(h)
        d = MultivariateNormal(a, torch.diag_embed(self.variance.expand_as(a))) if self.continuous else Categorical(F.softmax(a, dim=-1))
        return d, self.critic(h).squeeze(-1)


for continuous in (False, True):
    net = ActorCritic(continuous)
    optimizer = torch.optim.Adam([{"params": net.body.parameters()}, {"params": net.actor.parameters(), "lr": 3e-3}, {"params": net.critic.parameters()}], lr=1e-2)
    states, actions, logs, gains, total = torch.randn(12, 4), [], [], [], 0.0
    for s in states:
        d, _ = net(s)
        actions.append(d.sample())
        logs.append(d.log_prob(actions[-1]).detach())
    for r in reversed(world.rand(12).tolist()):
        total = r + 0.9 * total
        gains.insert(0, total)
    gains = torch.tensor(gains)
    gains = (gains - gains.mean()) / (gains.std() + np.finfo(np.float32).eps.item())
    for _ in range(4):
        d, value = net(states)
        ratio = torch.exp(d.log_prob(torch.stack(actions)) - torch.stack(logs))
        advantage = gains - value.detach()
        loss = (-torch.min(ratio * advantage, torch.clamp(ratio, 0.8, 1.2) * advantage) + 0.5 * F.mse_loss(value, gains) - 0.01 * d.entropy()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item())
print(torch.stack(actions)[:2], kl_divergence(Normal(0.0, 1.0), Normal(torch.ones(2), 2.0)))
