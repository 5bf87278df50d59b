"""Processes that hold a process group and run what they are told; in a file without torch, so that they start quickly."""

from __future__ import annotations

import importlib
import multiprocessing
import traceback
from collections.abc import Callable
from typing import Any


class RankFailed(AssertionError):
    """What some ranks raised, by rank."""

    def __init__(self, errors: dict[int, str]):
        super().__init__("\n".join(f"rank {rank}: {text}" for rank, text in errors.items()))
        self.errors = errors


def _serve(rank: int, size: int, name: str, path: str, pipe: Any) -> None:
    module = importlib.import_module(name)
    importlib.import_module(f"{name}.distributed")
    module.distributed.init_process_group("gloo", f"file://{path}", rank=rank, world_size=size)
    module.set_num_threads(1)
    pipe.send((True, "ready"))
    while True:
        told = pipe.recv()
        if told is None:
            break
        function, args = told
        try:
            pipe.send((True, function(module, *args)))
        except BaseException as error:
            pipe.send((False, f"{type(error).__name__}: {error}\n{traceback.format_exc()}"))
    module.distributed.destroy_process_group()


class Ranks:
    """`size` processes of one world; `ranks(function, ...)` runs function(module, ...) in each; their answers by rank."""

    def __init__(self, size: int, path: Any, module: str = "flambeau"):
        start = multiprocessing.get_context("spawn")
        self.size, self.pipes, self.processes = size, [], []
        for rank in range(size):
            ours, theirs = start.Pipe()
            process = start.Process(target=_serve, args=(rank, size, module, str(path), theirs), daemon=True)
            process.start()
            theirs.close()
            self.pipes.append(ours)
            self.processes.append(process)
        self.answers()

    def answers(self) -> list[Any]:
        found = []
        for pipe in self.pipes:
            if not pipe.poll(120):
                raise TimeoutError("a rank does not answer")
            found.append(pipe.recv())
        errors = {rank: said for rank, (well, said) in enumerate(found) if not well}
        if errors:
            raise RankFailed(errors)
        return [said for _, said in found]

    def __call__(self, function: Callable[..., Any], *args: Any) -> list[Any]:
        for pipe in self.pipes:
            pipe.send((function, args))
        return self.answers()

    def close(self) -> None:
        for pipe in self.pipes:
            try:
                pipe.send(None)
            except OSError:
                pass
        for process in self.processes:
            process.join(10)
            if process.is_alive():
                process.kill()
                process.join()
