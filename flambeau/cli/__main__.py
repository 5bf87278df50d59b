"""`python -m flambeau.cli`: the command `flambeau` where its script is not on the path."""

import sys

from . import main

sys.exit(main())
