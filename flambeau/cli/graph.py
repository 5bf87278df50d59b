"""`flambeau graph program.py`: runs a program up to its first backward and writes the explored graph of it."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import flambeau

from . import run

_ABOUT = """Runs a program (as `flambeau run` does) until it first calls `backward`, writes the graph behind that call as one
HTML page that can be explored in a browser, and ends the program there. Compiled functions run as plain Python meanwhile."""
_STATUS = """exit status: 0 written; 1 no backward was called; 2 wrong command line; 3 the program stopped at something of
PyTorch's that flambeau does not have"""


class _Done(BaseException):
    """Ends the program; no `except Exception` of its own keeps it going."""


def main(arguments: list[str]) -> int:
    """Exit status: 0 written; 1 the program called no backward, or failed before it; 2 no such file; 3 as in `run`."""
    parser = argparse.ArgumentParser("flambeau graph", description=_ABOUT, epilog=_STATUS,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("graph.html"), help="the page to write (default: graph.html)")
    parser.add_argument("program", help="a Python file that says `import torch` or `import flambeau`")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="what the program itself is given")
    options = parser.parse_args(arguments)
    out = options.out.absolute()  # the program may change its folder
    written = []

    def first(tensors: list[Any], gradients: list[Any], model: Any) -> NoReturn:
        from ..viz import explore
        given = None if all(g is None for g in gradients) else gradients
        written.append(explore(tensors, model, out, gradient=given, title=f"The first backward of {options.program}"))
        raise _Done

    try:
        with intercepted(first):
            status = run.main([options.program, *options.arguments])
    except _Done:
        status = 0
    except SystemExit as ended:
        status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    if written:
        print(f"the graph of its first backward, of {len(written[0].data['vertices'])} nodes: {options.out}", file=sys.stderr)
        return 0
    if status == 0:
        print("flambeau graph: the program ended without a call of backward", file=sys.stderr)
    return status or 1


class intercepted:
    """A `with` block in which the first backward calls `first(tensors, gradients, model)` instead. What runs before it notes
    its lines and modules, for the page."""

    def __init__(self, first: Any):
        self.first = first
        self.recordings: list[Any] = []
        self.models: set[int] = set()  # modules that are recorded, and all inside of them

    def __enter__(self) -> None:
        self.before = flambeau.Tensor.backward, flambeau.autograd.backward
        flambeau.compiler.set_stance("force_eager")
        from ..nn.modules.module import register_module_forward_pre_hook
        from ..viz import recording
        self.recordings.append(recording().__enter__())
        self.handle = register_module_forward_pre_hook(self._called)
        self.process = os.getpid()  # of workers that are forked, none is the program

        def of_tensor(tensor: Any, gradient: Any = None, *args: Any, **kwargs: Any) -> Any:
            if os.getpid() != self.process:
                return self.before[0](tensor, gradient, *args, **kwargs)
            return self._found([tensor], [gradient], sys._getframe(1))

        def of_many(tensors: Any, grad_tensors: Any = None, *args: Any, **kwargs: Any) -> Any:
            if os.getpid() != self.process:
                return self.before[1](tensors, grad_tensors, *args, **kwargs)
            tensors = [tensors] if isinstance(tensors, flambeau.Tensor) else list(tensors)
            given = [grad_tensors] if isinstance(grad_tensors, flambeau.Tensor) else list(grad_tensors or [])
            return self._found(tensors, given + [None] * (len(tensors) - len(given)), sys._getframe(1))

        flambeau.Tensor.backward, flambeau.autograd.backward = of_tensor, of_many

    def __exit__(self, *exc: Any) -> None:
        flambeau.Tensor.backward, flambeau.autograd.backward = self.before
        flambeau.compiler.set_stance("default")
        self.handle.remove()
        for one in reversed(self.recordings):
            one.__exit__(None, None, None)

    def _called(self, module: Any, args: Any) -> None:
        """Before a module runs: if it is not part of one that is recorded, it is a model."""
        if id(module) not in self.models:
            from ..viz import recording
            self.models.update(map(id, module.modules()))
            self.recordings.append(recording(module).__enter__())

    def _found(self, tensors: list[Any], gradients: list[Any], frame: FrameType | None) -> Any:
        flambeau.Tensor.backward, flambeau.autograd.backward = self.before  # the page runs a pass of its own
        return self.first(tensors, gradients, _model(frame))


def _model(frame: FrameType | None) -> Any:
    """The module with most parameters that the calling functions have at hand, as variables or as attributes of `self`."""
    from ..nn import Module
    found: dict[int, Any] = {}
    while frame is not None:
        for value in list(frame.f_locals.values()):
            inner = list(vars(value).values()) if hasattr(value, "__dict__") and not isinstance(value, (Module, type)) else []
            found.update({id(v): v for v in (value, *inner) if isinstance(v, Module)})
        frame = frame.f_back
    return max(found.values(), key=lambda m: sum(p.numel() for p in m.parameters()), default=None)
