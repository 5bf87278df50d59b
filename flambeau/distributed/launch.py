"""`python -m flambeau.distributed.launch`: the launcher under its older name, which also takes --use-env."""

from __future__ import annotations

import sys

from . import run as launcher

__all__ = ["launch", "main"]


def launch(args: list[str] | None = None) -> None:
    given = sys.argv[1:] if args is None else args
    launcher.main([a for a in given if a not in ("--use-env", "--use_env")])  # the environment is always used


main = launch

if __name__ == "__main__":
    main()
