"""An LSTM that learns to write, one character at a time.

It reads Python's language reference (the text behind help(), which comes with Python), learns which character follows,
and at the end writes some of its own.

Prints the size of text and model, the loss as it falls, and 500 characters of new text.
"""

from common import Progress, command_line, python_reference

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim


class CharLSTM(nn.Module):
    def __init__(self, characters, width=192, layers=1):
        super().__init__()
        self.embed = nn.Embedding(characters, 48)
        self.lstm = nn.LSTM(48, width, layers, batch_first=True)
        self.out = nn.Linear(width, characters)

    def forward(self, text, state=None):
        hidden, state = self.lstm(self.embed(text), state)
        return self.out(hidden), state


def write(model, alphabet, start, length, temperature=0.6):
    """Text from the model: each character is drawn from what it expects, then fed back."""
    model.eval()
    text, state = start, None
    fed = torch.tensor([[alphabet.index(c) for c in start]])
    with torch.no_grad():
        for _ in range(length):
            logits, state = model(fed, state)
            # A temperature below 1 makes the likely ones likelier: fewer odd words.
            probabilities = F.softmax(logits[0, -1] / temperature, dim=0)
            fed = torch.multinomial(probabilities, 1).view(1, 1)
            text += alphabet[fed.item()]
    return text


def main(steps=400, seed=0, quiet=False, batch=32, length=64, sample=500):
    torch.manual_seed(seed)
    text = python_reference()
    alphabet = sorted(set(text))
    number = {c: i for i, c in enumerate(alphabet)}
    data = torch.tensor([number[c] for c in text])
    model = CharLSTM(len(alphabet))
    if not quiet:
        weights = sum(p.numel() for p in model.parameters())
        print(f"{len(text)} characters, {len(alphabet)} different; {weights} weights")
    optimizer = optim.Adam(model.parameters(), lr=6e-3)
    schedule = optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=steps)
    window = torch.arange(length + 1)

    losses = []
    bar = Progress(steps, quiet)
    for _ in bar:
        # Each row is a stretch of the text; the answer to each character is the next one.
        rows = data[torch.randint(0, len(data) - length, (batch, 1)) + window]
        logits, _ = model(rows[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)  # a long chain of products can make gradients explode
        optimizer.step()
        schedule.step()
        losses.append(loss.item())
        bar.note(loss=losses[-1])

    if not quiet:
        print("\n" + write(model, alphabet, "The ", sample))
    return losses


if __name__ == "__main__":
    command_line(main, __doc__)
