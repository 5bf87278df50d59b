"""What the examples share: a command line, a progress bar, pictures, the digits, and text to learn from.

Nothing here imports the framework (load_digits is handed it), so an example is switched between flambeau and PyTorch by
its own import lines alone.
"""

import argparse
import gzip
import inspect
import itertools
import re
import struct
import sys
import time
import zlib
from pathlib import Path

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"


# -- the command line

def command_line(main, description):
    """Runs `main` with an option for each of its keywords (--steps, --seed, ...), then shows how the loss went."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, parameter in inspect.signature(main).parameters.items():
        default = parameter.default
        if isinstance(default, bool):
            parser.add_argument(f"--{name}", action="store_true")
        else:
            parser.add_argument(f"--{name}", type=int if default is None else type(default), default=default,
                                help=f"default: {default}")
    options = parser.parse_args()
    start = time.perf_counter()
    losses = main(**vars(options))
    print(f"\nloss {sparkline(losses)}  {losses[0]:.4g} -> {losses[-1]:.4g} "
          f"in {len(losses)} steps, {time.perf_counter() - start:.1f} s")
    save_curve(losses, Path(inspect.getfile(main)).stem)


def sparkline(values, width=50):
    """The course of a list of numbers in one line of text: each character is the mean of a stretch of it."""
    marks = "▁▂▃▄▅▆▇█"
    parts = min(width, len(values))
    cuts = [len(values) * i // parts for i in range(parts + 1)]
    means = [sum(values[a:b]) / (b - a) for a, b in itertools.pairwise(cuts)]
    low, high = min(means), max(means)
    return "".join(marks[round((m - low) / ((high - low) or 1) * (len(marks) - 1))] for m in means)


class Progress:
    """Counts through `range(total)` with a bar: tqdm's where it is installed, else a plain one.

        bar = Progress(500)
        for step in bar:
            bar.note(loss=...)
    """

    def __init__(self, total, quiet=False):
        self.total, self.quiet, self.text, self.tqdm = total, quiet, "", None
        if not quiet:
            try:
                from tqdm import tqdm
                self.tqdm = tqdm(total=total)
            except ImportError:
                pass

    def note(self, **values):
        self.text = "  ".join(f"{name} {value:.4f}" for name, value in values.items())

    def __iter__(self):
        shown = 0.0
        for step in range(self.total):
            yield step
            # A loop may take microseconds per step: drawing ten times a second is enough.
            now = time.perf_counter()
            if not self.quiet and (now - shown > 0.1 or step + 1 == self.total):
                shown = now
                self._draw(step + 1)
        if self.tqdm is not None:
            self.tqdm.close()

    def _draw(self, done, width=30):
        if self.tqdm is not None:
            self.tqdm.set_postfix_str(self.text, refresh=False)
            self.tqdm.update(done - self.tqdm.n)
        elif sys.stdout.isatty() or done == self.total:  # a log file gets the last state only
            filled = width * done // self.total
            end = "\n" if done == self.total else ""
            print(f"\r{'█' * filled}{'·' * (width - filled)} {done}/{self.total}  {self.text}", end=end, flush=True)


# -- pictures

def save_curve(losses, name):
    """The loss curve as pictures/<name>_loss.png, where matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print("(pip install matplotlib, and the loss curve is saved as a picture too)")
        return
    matplotlib.use("Agg")  # draws into files: no window, no display needed
    from matplotlib import pyplot
    figure, axes = pyplot.subplots(figsize=(6, 3.5))
    axes.plot(losses)
    axes.set(xlabel="step", ylabel="loss", title=name)
    figure.tight_layout()
    PICTURES.mkdir(exist_ok=True)
    path = PICTURES / f"{name}_loss.png"
    figure.savefig(path, dpi=120)
    pyplot.close(figure)
    print(f"the curve: {path}")


def ascii_picture(rows):
    """Numbers between 0 and 1, as a picture made of characters."""
    shades = " .:-=+*#%@"
    return "\n".join("".join(2 * shades[min(9, max(0, int(v * 10)))] for v in row) for row in rows)


def save_png(rows, name, scale=6):
    """Numbers between 0 and 1 as a grey pictures/<name>.png. (PNG is simple: a header, and zipped rows.)"""
    large = [bytes(255 - min(255, max(0, int(v * 255))) for v in row for _ in range(scale))
             for row in rows for _ in range(scale)]

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", len(large[0]), len(large), 8, 0, 0, 0, 0)  # 8 bits per pixel, grey
    PICTURES.mkdir(exist_ok=True)
    path = PICTURES / f"{name}.png"
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header)
                     + chunk(b"IDAT", zlib.compress(b"".join(b"\0" + row for row in large))) + chunk(b"IEND", b""))
    print(f"saved {path}")


# -- data

def load_digits(torch):
    """1797 images of 8x8 pixels (as rows of 64 numbers between 0 and 1) and their labels, as tensors of `torch`."""
    raw = bytearray(gzip.decompress((HERE / "data" / "digits.bin.gz").read_bytes()))
    table = torch.frombuffer(raw, dtype=torch.uint8).view(-1, 65)
    return table[:, :64].float() / 16, table[:, 64].long()


def split_digits(torch, train=1500):
    """The digits in random order: training images and labels, then test images and labels."""
    x, y = load_digits(torch)
    order = torch.randperm(len(x))
    x, y = x[order], y[order]
    return x[:train], y[:train], x[train:], y[train:]


def python_reference(characters=400_000):
    """The beginning of Python's language reference, which comes with Python as the text behind help()."""
    from pydoc_data.topics import topics
    text = "\n".join(topics[name] for name in sorted(topics))[:characters]
    return "".join(c for c in text if c == "\n" or " " <= c <= "~")  # plain ASCII keeps the alphabet small


def library_docstrings(files=None):
    """The words of the docstrings in Python's standard library, lower case, in the order in which they stand."""
    folder = Path(inspect.getfile(argparse)).parent
    paths = sorted(p for p in folder.rglob("*.py") if not {"site-packages", "test", "tests"} & set(p.parts))
    words = []
    for path in paths[:files]:
        for docstring in re.findall(r'"""(.*?)"""', path.read_text(encoding="utf-8", errors="ignore"), re.DOTALL):
            words += re.findall(r"[a-z]+", docstring.lower())
    return words
