"""The command `flambeau`: one file per subcommand, imported when it is used.

A file has `main(arguments) -> int`, what follows the subcommand's name and the status that the process ends with:
    0  it was done
    1  it was done, and the answer is bad news: `check` found what flambeau lacks, `graph` saw no backward, the program failed
    2  the command line was wrong: an unknown option, a file that is not there or is no Python
    3  the program stopped at something of PyTorch's that flambeau does not have
"""

from __future__ import annotations

import sys

COMMANDS = {
    "run": "run a program that says `import torch`, on flambeau",
    "check": "read a program, and say which names of torch it uses that flambeau lacks",
    "demo": "train a small GPT, or a network on handwritten digits, and look at it",
    "graph": "run a program up to its first backward, and write the graph as a page to explore",
    "bench": "measure flambeau and every peer that is installed",
    "info": "versions, compiler, instruction set, threads, cache, GPU",
}
_HELP = """flambeau: PyTorch's semantics and names, Python all the way down.

usage: flambeau COMMAND ...

{commands}

`flambeau COMMAND --help` says more about each.

exit status: 0 done; 1 bad news (something is missing, the program failed); 2 wrong command line;
             3 the program stopped at something of PyTorch's that flambeau does not have"""


def main(arguments: list[str] | None = None) -> int:
    """Runs a command line (by default the process's own), and returns the status to end with."""
    given = sys.argv[1:] if arguments is None else arguments
    command = given[0] if given else "--help"
    if command in ("-h", "--help", "help"):
        print(_HELP.format(commands="\n".join(f"  {name:8} {text}" for name, text in COMMANDS.items())))
        return 0 if given else 2
    if command in ("-V", "--version"):
        from .. import __version__
        print(f"flambeau {__version__}")
        return 0
    if command not in COMMANDS:
        import difflib
        close = difflib.get_close_matches(command, COMMANDS, 1)
        meant = f"did you mean `flambeau {close[0]}`?" if close else f"there are {', '.join(COMMANDS)}."
        hint = f" (To run a program: `flambeau run {command}`.)" if command.endswith(".py") else ""
        print(f"flambeau: there is no command {command!r}; {meant}{hint}", file=sys.stderr)
        return 2
    import importlib
    try:
        return importlib.import_module(f".{command}", __package__).main(given[1:])
    except KeyboardInterrupt:
        print("\ninterrupted", file=sys.stderr)
        return 130
