"""Train a small network on handwritten digits, from tensors and autograd alone.

Run it with `make demo`, or `python examples/digits_mlp.py`. It prints the loss as it falls, the accuracy on images the
network never saw, and the graph that autograd recorded for one step.
"""

import gzip
import time
from pathlib import Path

import flambeau as torch

HERE = Path(__file__).parent


def load_digits():
    """1797 images of 8x8 pixels (as rows of 64 numbers between 0 and 1) and their labels."""
    raw = bytearray(gzip.decompress((HERE / "data" / "digits.bin.gz").read_bytes()))
    table = torch.frombuffer(raw, dtype=torch.uint8).view(-1, 65)
    return table[:, :64].float() / 16, table[:, 64].long()


def parameter(*shape):
    """A weight drawn small enough that the layer keeps the size of its input."""
    return (torch.randn(*shape) * shape[0] ** -0.5).requires_grad_()


def bar(done, total, width=30):
    filled = width * done // total
    return "█" * filled + "·" * (width - filled)


def print_graph(tensor, depth=12):
    """The chain of recorded operations behind a tensor, nearest first."""
    node, indent = tensor.grad_fn, 0
    while node is not None and indent < depth:
        saved = [name[7:] for name in dir(node) if name.startswith("_saved_")]
        print("  " * indent + f"{node.name()}" + (f"  (saved: {', '.join(saved)})" if saved else ""))
        node = next((f for f, _ in node.next_functions if f is not None and type(f).__name__ != "AccumulateGrad"), None)
        indent += 1


def main(steps=300, batch=128, rate=0.5):
    torch.manual_seed(0)
    x, y = load_digits()
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    train_x, train_y, test_x, test_y = x[:1500], y[:1500], x[1500:], y[1500:]
    w1, b1, w2, b2 = parameters = [parameter(64, 48), torch.zeros(48, requires_grad=True),
                                   parameter(48, 10), torch.zeros(10, requires_grad=True)]

    def logits(inputs):
        return (inputs @ w1 + b1).tanh() @ w2 + b2

    def loss_of(inputs, labels):
        return -logits(inputs).log_softmax(1).gather(1, labels.unsqueeze(1)).mean()

    losses, start = [], time.perf_counter()
    for step in range(1, steps + 1):
        pick = torch.randint(0, len(train_x), (batch,))
        loss = loss_of(train_x[pick], train_y[pick])
        loss.backward()
        with torch.no_grad():
            for p in parameters:
                p -= rate * p.grad
                p.grad = None
        losses.append(loss.item())
        if step % (steps // 10) == 0:
            print(f"step {step:4d} {bar(step, steps)} loss {losses[-1]:.4f}", flush=True)
    seconds = time.perf_counter() - start

    with torch.no_grad():
        accuracy = (logits(test_x).argmax(1) == test_y).float().mean().item()
    print(f"\n{steps} steps in {seconds:.2f} s ({1e3 * seconds / steps:.2f} ms each); "
          f"accuracy on {len(test_x)} new images: {accuracy:.1%}")
    print("\nThe graph behind the loss of one step:")
    print_graph(loss_of(train_x[:4], train_y[:4]))
    return losses, accuracy


if __name__ == "__main__":
    main()
