"""A graph network that foresees how a club splits, from who is friends with whom.

Zachary's karate club (W. W. Zachary, 1977): 34 members, 78 friendships. After a quarrel the club split in two. The
network is told the side of two people only, the instructor (0) and the president (33), and finds that of all others.

Prints how many of the other 32 it places right, and the two sides.
"""

from common import Progress, command_line

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim

FRIENDS = {  # member: friends with a smaller number
    1: [0], 2: [0, 1], 3: [0, 1, 2], 4: [0], 5: [0], 6: [0, 4, 5], 7: [0, 1, 2, 3], 8: [0, 2], 9: [2],
    10: [0, 4, 5], 11: [0], 12: [0, 3], 13: [0, 1, 2, 3], 16: [5, 6], 17: [0, 1], 19: [0, 1], 21: [0, 1],
    25: [23, 24], 27: [2, 23, 24], 28: [2], 29: [23, 26], 30: [1, 8], 31: [0, 24, 25, 28],
    32: [2, 8, 14, 15, 18, 20, 22, 23, 29, 30, 31],
    33: [8, 9, 13, 14, 15, 18, 19, 20, 22, 23, 26, 27, 28, 29, 30, 31, 32],
}
WITH_INSTRUCTOR = {0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 17, 19, 21}
MEMBERS = 34


class GraphConvolution(nn.Module):
    """Each node takes the mean of its neighbours' vectors and its own, weighted by their degrees, then a linear map."""

    def __init__(self, inputs, outputs):
        super().__init__()
        self.linear = nn.Linear(inputs, outputs)

    def forward(self, x, source, target, weight):
        messages = self.linear(x)[source] * weight
        # Every message is added to the row of the node that it goes to.
        return torch.zeros(len(x), messages.shape[1]).index_add(0, target, messages)


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first, self.second = GraphConvolution(MEMBERS, width), GraphConvolution(width, 2)
        self.dropout = nn.Dropout(0.3)

    def forward(self, x, *graph):
        return self.second(self.dropout(F.relu(self.first(x, *graph))), *graph)


def graph():
    """Where each message comes from, where it goes, and its weight."""
    edges = [(a, b) for a, others in FRIENDS.items() for b in others]
    edges += [(b, a) for a, b in edges]               # friendship goes both ways
    edges += [(i, i) for i in range(MEMBERS)]         # and everybody hears himself
    source, target = torch.tensor(edges).t()
    degree = torch.zeros(MEMBERS).scatter_add(0, target, torch.ones(len(edges)))
    # Divided by both degrees' roots: someone with many friends neither shouts nor is drowned out.
    weight = (degree[source] * degree[target]).rsqrt().unsqueeze(1)
    return source, target, weight


def main(steps=200, seed=0, quiet=False):
    torch.manual_seed(seed)
    edges = graph()
    x = torch.eye(MEMBERS)  # nothing is known of a member but who he is
    sides = torch.tensor([0 if i in WITH_INSTRUCTOR else 1 for i in range(MEMBERS)])
    known = torch.tensor([0, 33])
    model = Net()
    optimizer = optim.Adam(model.parameters(), lr=0.01, weight_decay=5e-4)

    losses = []
    bar = Progress(steps, quiet)
    for _ in bar:
        loss = F.cross_entropy(model(x, *edges)[known], sides[known])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        bar.note(loss=losses[-1])

    if not quiet:
        model.eval()
        with torch.no_grad():
            guess = model(x, *edges).argmax(1)
        right = (guess == sides).tolist()
        print(f"\n{sum(right) - 2} of the {MEMBERS - 2} members whose side it was not told are right "
              f"(wrong: {[i for i, ok in enumerate(right) if not ok]})")
        for side, name in enumerate(("instructor", "president")):
            print(f"with the {name}: {(guess == side).nonzero().flatten().tolist()}")
    return losses


if __name__ == "__main__":
    command_line(main, __doc__)
