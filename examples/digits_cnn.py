"""A convolutional network with batch norm and dropout that reads handwritten digits.

Trains on 1500 images of 8x8 pixels, then tells the accuracy on the 297 that it has not seen.
"""

from common import Progress, command_line, split_digits

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        # No bias where batch norm follows: it would subtract it again.
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1, bias=False), nn.BatchNorm2d(16), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1, bias=False), nn.BatchNorm2d(32), nn.ReLU(),
            nn.MaxPool2d(2), nn.Dropout2d(0.1))
        self.classify = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * 4 * 4, 64), nn.ReLU(), nn.Dropout(0.3), nn.Linear(64, 10))

    def forward(self, images):
        return self.classify(self.features(images))


def accuracy(model, images, labels):
    model.eval()  # dropout off, batch norm with its running averages
    with torch.no_grad():
        return (model(images).argmax(1) == labels).float().mean().item()


def main(epochs=12, steps=0, seed=0, quiet=False):
    """`steps`, if given, ends the training early."""
    torch.manual_seed(seed)
    train_x, train_y, test_x, test_y = split_digits(torch)
    train_x, test_x = train_x.view(-1, 1, 8, 8), test_x.view(-1, 1, 8, 8)
    loader = DataLoader(TensorDataset(train_x, train_y), batch_size=50, shuffle=True)
    steps = min(steps or epochs * len(loader), epochs * len(loader))

    model = Net()
    optimizer = optim.Adam(model.parameters(), lr=3e-3)
    # The rate rises, then falls to nearly nothing: the last epochs only polish.
    schedule = optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=epochs * len(loader))

    def batches():
        for _ in range(epochs):
            model.train()
            yield from loader

    losses = []
    bar = Progress(steps, quiet)
    for _, (images, labels) in zip(bar, batches()):
        loss = F.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        bar.note(loss=losses[-1])

    if not quiet:
        print(f"\naccuracy on the {len(train_x)} training images: {accuracy(model, train_x, train_y):.1%}, "
              f"on {len(test_x)} new ones: {accuracy(model, test_x, test_y):.1%}")
    return losses


if __name__ == "__main__":
    command_line(main, __doc__)
