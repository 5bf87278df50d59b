"""REINFORCE: learns to balance a pole on a cart from rewards alone.

The cart is pushed left or right fifty times a second; the reward is one for each moment the pole stands. Actions that
were followed by more reward than usual become more likely. Most rounds last about 20 moments at first; 200 is the end.

Prints how long the pole stands, as it learns: the loss that is shown is minus the reward.
"""

import math
import random

from common import Progress, command_line

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim

LONGEST = 200


class CartPole:
    """A cart on a track with a pole hinged on it (Barto, Sutton and Anderson, 1983), in Euler steps of 1/50 s."""

    GRAVITY, CART, POLE, HALF_LENGTH, FORCE, SECONDS = 9.8, 1.0, 0.1, 0.5, 10.0, 0.02

    def __init__(self, generator):
        self.state = [generator.uniform(-0.05, 0.05) for _ in range(4)]

    def step(self, action):
        """Pushes left (0) or right (1); returns whether the pole still stands and the cart is still on the track."""
        x, speed, angle, turning = self.state
        force = self.FORCE if action == 1 else -self.FORCE
        sine, cosine, mass = math.sin(angle), math.cos(angle), self.CART + self.POLE
        push = (force + self.POLE * self.HALF_LENGTH * turning ** 2 * sine) / mass
        turn = ((self.GRAVITY * sine - cosine * push)
                / (self.HALF_LENGTH * (4 / 3 - self.POLE * cosine ** 2 / mass)))
        acceleration = push - self.POLE * self.HALF_LENGTH * turn * cosine / mass
        self.state = [x + self.SECONDS * speed, speed + self.SECONDS * acceleration,
                      angle + self.SECONDS * turning, turning + self.SECONDS * turn]
        return abs(self.state[0]) < 2.4 and abs(self.state[2]) < math.radians(12)


def play(policy, rounds, generator):
    """Several rounds at once, so that one pass of the network decides for all of them.

    Returns the states met, the actions taken, the number of the round of each, and how long each round lasted.
    """
    carts = [CartPole(generator) for _ in range(rounds)]
    standing, lasted = list(range(rounds)), [0] * rounds
    states, actions, owners = [], [], []
    with torch.no_grad():  # playing needs no gradients: they are taken afterwards, in one pass over all that was met
        while standing and max(lasted) < LONGEST:
            now = [carts[i].state for i in standing]
            chosen = torch.multinomial(F.softmax(policy(torch.tensor(now)), dim=1), 1).flatten().tolist()
            states += now
            actions += chosen
            owners += standing
            for i in standing:
                lasted[i] += 1
            standing = [i for i, action in zip(standing, chosen) if carts[i].step(action)]
    return states, actions, owners, lasted


def rewards_to_come(owners, rounds, discount=0.99):
    """For each moment the reward from then on, later ones counting a little less."""
    ahead, result = [0.0] * rounds, []
    for i in reversed(owners):
        ahead[i] = 1.0 + discount * ahead[i]
        result.append(ahead[i])
    return result[::-1]


def main(steps=100, seed=0, quiet=False, rounds=10):
    """Returns minus the mean reward after each step. (REINFORCE's own loss has a useful gradient, but its value says
    nothing about progress.)"""
    torch.manual_seed(seed)
    generator = random.Random(seed)
    policy = nn.Sequential(nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 2))
    optimizer = optim.Adam(policy.parameters(), lr=1e-2)

    losses = []
    bar = Progress(steps, quiet)
    for _ in bar:
        states, actions, owners, lasted = play(policy, rounds, generator)
        reward = torch.tensor(rewards_to_come(owners, rounds))
        # Compared with the average: otherwise every action would be encouraged, good or bad, and learning be noisy.
        advantage = (reward - reward.mean()) / (reward.std() + 1e-8)
        log_probability = F.log_softmax(policy(torch.tensor(states)), dim=1)
        taken = log_probability.gather(1, torch.tensor(actions).unsqueeze(1)).squeeze(1)
        loss = -(taken * advantage).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(-sum(lasted) / rounds)
        bar.note(reward=-losses[-1])

    if not quiet:
        _, _, _, lasted = play(policy, 20, generator)
        print(f"\nthe pole stood for {-losses[0]:.0f} moments at first; now, in 20 rounds: "
              f"{sum(lasted) / 20:.0f} on average of at most {LONGEST}")
    return losses


if __name__ == "__main__":
    command_line(main, __doc__)
