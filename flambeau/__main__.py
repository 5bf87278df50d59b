"""`python -m flambeau program.py arguments`: the same as `flambeau run`."""

from __future__ import annotations

import sys

from .cli.run import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
