"""The explored graph of a loss as a file: the one place where the command line asks `flambeau.viz`."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any


def write(loss: Any, model: Any, path: Path) -> Path | None:
    """Writes the page and returns its path; None where this build has no `viz.explore`."""
    try:
        explore = importlib.import_module("flambeau.viz").explore
    except (ModuleNotFoundError, AttributeError) as error:
        if getattr(error, "name", None) not in ("flambeau.viz", "explore"):
            raise
        return None
    path.parent.mkdir(parents=True, exist_ok=True)
    explore(loss, model, path)
    return path


MISSING = "not written: this build of flambeau has no flambeau.viz.explore"
