"""Made by tools/stubs.py."""

from typing import Any

DeviceType: Any
ProfilerAction: Any
ProfilerActivity: Any
kineto_available: Any
profile: Any
record_function: Any
schedule: Any
supported_activities: Any
tensorboard_trace_handler: Any
