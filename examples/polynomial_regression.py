"""Polynomial regression: the cubic a + b x + c x^2 + d x^3 that is closest to sin(x) between -pi and pi.

The polynomial is linear in its coefficients, so it is one nn.Linear over the powers of x. The step is compiled: so small
a model spends most of an eager step in Python.

Prints the coefficients, and the best that any cubic can do, found by solving the least-squares problem directly.
"""

import math

from common import Progress, command_line

import flambeau as torch
from flambeau import nn, optim


def main(steps=2000, seed=0, quiet=False):
    torch.manual_seed(seed)
    x = torch.linspace(-math.pi, math.pi, 2000)
    y = torch.sin(x)
    powers = x.unsqueeze(-1).pow(torch.tensor([1, 2, 3]))  # 2000 rows of (x, x^2, x^3)

    model = nn.Sequential(nn.Linear(3, 1), nn.Flatten(0, 1))
    loss_of = nn.MSELoss()
    # RMSprop divides each gradient by its usual size: x^3 reaches 31, and with plain SGD its coefficient would dictate
    # a rate at which the others hardly move.
    optimizer = optim.RMSprop(model.parameters(), lr=1e-2)
    # At a constant rate the coefficients would go on trembling around the best ones.
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps, eta_min=1e-5)

    @torch.compile
    def step(powers, y):
        loss = loss_of(model(powers), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    bar = Progress(steps, quiet)
    for _ in bar:
        loss = step(powers, y)
        schedule.step()
        losses.append(loss.item())
        bar.note(loss=losses[-1])

    if not quiet:
        table = torch.cat([torch.ones(len(x), 1), powers], 1)
        best = torch.linalg.lstsq(table, y.unsqueeze(1)).solution.squeeze(1)
        found = torch.cat([model[0].bias, model[0].weight[0]]).detach()
        print()
        for name, numbers in (("found", found), ("best", best)):
            print("{:>5}: sin(x) = {:.4f} + {:.4f} x + {:.4f} x^2 + {:.4f} x^3".format(name, *numbers.tolist())
                  + f", mean square error {loss_of(table @ numbers, y).item():.6f}")
    return losses


if __name__ == "__main__":
    command_line(main, __doc__)
