"""Train a small network on handwritten digits, from tensors and autograd alone.

Run it with `python examples/digits_mlp.py`. It prints the loss as it falls, the accuracy on images the
network never saw, and the graph that autograd recorded for one step.
"""

from common import Progress, command_line, split_digits

import flambeau as torch


def parameter(*shape):
    """A weight drawn small enough that the layer keeps the size of its input."""
    return (torch.randn(*shape) * shape[0] ** -0.5).requires_grad_()


def print_graph(tensor, depth=12):
    """The chain of recorded operations behind a tensor, nearest first."""
    node, indent = tensor.grad_fn, 0
    while node is not None and indent < depth:
        saved = [name[7:] for name in dir(node) if name.startswith("_saved_")]
        print("  " * indent + f"{node.name()}" + (f"  (saved: {', '.join(saved)})" if saved else ""))
        node = next((f for f, _ in node.next_functions if f is not None and type(f).__name__ != "AccumulateGrad"), None)
        indent += 1


def main(steps=300, seed=0, batch=128, rate=0.5, quiet=False):
    torch.manual_seed(seed)
    train_x, train_y, test_x, test_y = split_digits(torch)
    w1, b1, w2, b2 = parameters = [parameter(64, 48), torch.zeros(48, requires_grad=True),
                                   parameter(48, 10), torch.zeros(10, requires_grad=True)]

    def logits(inputs):
        return (inputs @ w1 + b1).tanh() @ w2 + b2

    def loss_of(inputs, labels):
        return -logits(inputs).log_softmax(1).gather(1, labels.unsqueeze(1)).mean()

    losses = []
    progress = Progress(steps, quiet)
    for _ in progress:
        pick = torch.randint(0, len(train_x), (batch,))
        loss = loss_of(train_x[pick], train_y[pick])
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= rate * p.grad
                p.grad = None
        losses.append(loss.item())
        progress.note(loss=losses[-1])

    if not quiet:
        with torch.no_grad():
            accuracy = (logits(test_x).argmax(1) == test_y).float().mean().item()
        print(f"\naccuracy on {len(test_x)} new images: {accuracy:.1%}")
        print("\nThe graph behind the loss of one step:")
        print_graph(loss_of(train_x[:4], train_y[:4]))
    return losses


if __name__ == "__main__":
    command_line(main, __doc__)
