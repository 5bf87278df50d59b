"""Made by tools/stubs.py."""
from . import anomaly_mode as anomaly_mode
from . import forward_ad as forward_ad
from . import function as function
from . import functional as functional
from . import grad_mode as grad_mode
from . import graph as graph
from . import profiler as profiler
from . import variable as variable
from .anomaly import detect_anomaly as detect_anomaly
from .anomaly import set_detect_anomaly as set_detect_anomaly
from .function import Function as Function
from .function import NestedIOFunction as NestedIOFunction
from .gradcheck import gradcheck as gradcheck
from .gradcheck import gradgradcheck as gradgradcheck
from .modes import enable_grad as enable_grad
from .modes import inference_mode as inference_mode
from .modes import no_grad as no_grad
from .modes import set_grad_enabled as set_grad_enabled
from .passes import backward as backward
from .passes import grad as grad
from .variable import Variable as Variable
from .variable import is_multithreading_enabled as is_multithreading_enabled
from .variable import set_multithreading_enabled as set_multithreading_enabled
from typing import Any

kineto_available: Any
