"""Timing of small pieces of code: `Timer` measures, `Compare` makes a table of measurements."""

from __future__ import annotations

import sys

from ...missing import refused
from .compare import Compare
from .measurement import Measurement, TaskSpec, select_unit, trim_sigfig, unit_to_english
from .timer import Language, Timer, timer

__all__ = ["Compare", "Language", "Measurement", "TaskSpec", "Timer", "select_unit", "timer", "trim_sigfig",
           "unit_to_english"]
globals().update(refused("utils.benchmark", "counting instructions and fuzzing are not implemented",
                         "CallgrindStats FunctionCounts CopyIfCallgrind Fuzzer FuzzedParameter FuzzedTensor ParameterAlias "
                         "FuzzedSparseTensor"))
_here = sys.modules[__name__]
for _name in ("utils", "utils.timer", "utils.common", "utils.compare"):  # PyTorch's files
    sys.modules[f"{__name__}.{_name}"] = _here
utils = _here
