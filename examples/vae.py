"""A variational autoencoder: learns a small space of codes from which new digits can be drawn.

The encoder says for each image where its code lies and how sure it is (a mean and a variance); the decoder draws the
image again from a random code near there. At the end codes are drawn at random and decoded: digits nobody wrote.

Prints the loss as it falls and a row of new digits in characters, and saves a picture of many.
"""

from common import Progress, ascii_picture, command_line, load_digits, save_png

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim
from flambeau.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    def __init__(self, pixels=64, hidden=160, code=8):
        super().__init__()
        self.code = code
        self.encode = nn.Sequential(nn.Linear(pixels, hidden), nn.ReLU())
        self.mean, self.log_variance = nn.Linear(hidden, code), nn.Linear(hidden, code)
        self.decode = nn.Sequential(nn.Linear(code, hidden), nn.ReLU(), nn.Linear(hidden, pixels))

    def forward(self, images):
        hidden = self.encode(images)
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        # The random part is drawn apart and then scaled and shifted: so the gradient reaches mean and variance, which
        # it could not if the code itself were drawn.
        code = mean + torch.exp(0.5 * log_variance) * torch.randn_like(mean)
        return self.decode(code), mean, log_variance


def loss_of(logits, images, mean, log_variance):
    """Pixels badly redrawn, plus how far the codes are from a standard normal distribution; per image."""
    redrawn = F.binary_cross_entropy_with_logits(logits, images, reduction="sum")
    distance = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp())
    return (redrawn + distance) / len(images)


def sample_grid(model, rows, columns):
    """New digits side by side, as the rows of one picture."""
    model.eval()
    with torch.no_grad():
        pixels = torch.sigmoid(model.decode(torch.randn(rows * columns, model.code)))
    grid = F.pad(pixels.view(rows, columns, 8, 8), (1, 1, 1, 1))  # a margin of one pixel around each
    return grid.permute(0, 2, 1, 3).reshape(rows * 10, columns * 10).tolist()


def main(epochs=60, steps=0, seed=0, quiet=False):
    """`steps`, if given, ends the training early."""
    torch.manual_seed(seed)
    images, labels = load_digits(torch)
    loader = DataLoader(TensorDataset(images, labels), batch_size=100, shuffle=True)
    steps = min(steps or epochs * len(loader), epochs * len(loader))
    model = VAE()
    optimizer = optim.Adam(model.parameters(), lr=2e-3)

    losses = []
    bar = Progress(steps, quiet)
    batches = (images for _ in range(epochs) for images, _ in loader)
    for _, images in zip(bar, batches):
        logits, mean, log_variance = model(images)
        loss = loss_of(logits, images, mean, log_variance)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        bar.note(loss=losses[-1])

    if not quiet:
        print("\nnew digits:")
        print(ascii_picture(sample_grid(model, 2, 6)))
        save_png(sample_grid(model, 8, 12), "vae_samples")
    return losses


if __name__ == "__main__":
    command_line(main, __doc__)
