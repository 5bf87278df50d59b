"""word2vec: words that stand in similar company get similar vectors (skip-gram with negative sampling).

The text is the docstrings of Python's own standard library. For a word and a true neighbour the product of their
vectors is pushed up; for the word and a few random others it is pushed down. The step is compiled: it does little besides
moving rows of two tables, so most of an eager step would be Python.

Prints how much text there is, the loss as it falls, and the nearest neighbours of some words.
"""

from collections import Counter

from common import Progress, command_line, library_docstrings

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn, optim

SHOWN = ("file", "list", "string", "error", "thread", "server", "integer", "returns", "true", "first")


class SkipGram(nn.Module):
    def __init__(self, words, width):
        super().__init__()
        # Two vectors per word: one as the centre, one as the neighbour. With sparse=True the gradient holds only the
        # rows of the words in the batch, and so a step costs the same whatever the size of the vocabulary.
        self.centre = nn.Embedding(words, width, sparse=True)
        self.context = nn.Embedding(words, width, sparse=True)
        nn.init.uniform_(self.centre.weight, -0.5 / width, 0.5 / width)
        nn.init.zeros_(self.context.weight)

    def forward(self, centres, neighbours, strangers):
        v = self.centre(centres).unsqueeze(2)                # batch, width, 1
        near = (self.context(neighbours).unsqueeze(1) @ v)   # batch, 1, 1
        far = (self.context(strangers) @ v)                  # batch, strangers, 1
        return -(F.logsigmoid(near).sum() + F.logsigmoid(-far).sum()) / len(centres)


def corpus(vocabulary, files):
    """The words, the text as numbers (frequent words thinned out), and how often each word occurs."""
    text = library_docstrings(files or None)
    counts = Counter(text).most_common(vocabulary)
    words = [word for word, _ in counts]
    number = {word: i for i, word in enumerate(words)}
    ids = torch.tensor([number[word] for word in text if word in number])
    frequency = torch.tensor([float(count) for _, count in counts])
    # "the" says little about its neighbours: the more frequent a word, the more of its occurrences are dropped.
    share = frequency / frequency.sum()
    keep = (1e-3 / share).sqrt().clamp(max=1)
    return words, ids[torch.rand(len(ids)) < keep[ids]], frequency


def nearest(model, words, word, count=6):
    """The words whose vectors point most nearly the same way."""
    vectors = F.normalize(model.centre.weight.detach(), dim=1)
    closeness = vectors @ vectors[words.index(word)]
    return [words[i] for i in closeness.topk(count + 1).indices.tolist() if words[i] != word]


def main(steps=4000, seed=0, quiet=False, batch=512, width=64, vocabulary=4000, window=4, strangers=6, files=0):
    torch.manual_seed(seed)
    words, ids, frequency = corpus(vocabulary, files)
    if not quiet:
        print(f"{len(ids)} words of text, {len(words)} different ones")
    # The power 0.75 draws rare words a little more often than they occur; it is the paper's choice, found by trying.
    noise = frequency ** 0.75
    model = SkipGram(len(words), width)
    optimizer = optim.SparseAdam(model.parameters(), lr=4e-3)

    @torch.compile
    def step(word, neighbour, others):
        loss = model(word, neighbour, others)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    losses = []
    bar = Progress(steps, quiet)
    for _ in bar:
        at = torch.randint(window, len(ids) - window, (batch,))
        # A distance of 1 to `window` words, before or after: never 0, the word itself.
        distance = torch.randint(1, window + 1, (batch,)) * (torch.randint(0, 2, (batch,)) * 2 - 1)
        others = torch.multinomial(noise, batch * strangers, replacement=True).view(batch, strangers)
        loss = step(ids[at], ids[at + distance], others)
        losses.append(loss.item())
        bar.note(loss=losses[-1])

    if not quiet:
        print("\nnearest neighbours:")
        for word in SHOWN:
            if word in words:
                print(f"{word:>10}: {', '.join(nearest(model, words, word))}")
    return losses


if __name__ == "__main__":
    command_line(main, __doc__)
