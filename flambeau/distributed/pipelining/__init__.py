"""Pipeline parallel: consecutive layers on consecutive processes, each of which works on another part of the batch."""

from ...missing import refused
from .schedules import Schedule1F1B, ScheduleGPipe, ScheduleInterleaved1F1B, ScheduleLoopedBFS
from .stage import PipelineStage

__all__ = ["PipelineStage", "Schedule1F1B", "ScheduleGPipe", "ScheduleInterleaved1F1B", "ScheduleLoopedBFS"]
globals().update(refused("distributed.pipelining", "it is not implemented: make a PipelineStage of each process's layers",
                         "Pipe SplitPoint pipeline pipe_split build_stage "
                         "ScheduleInterleavedZeroBubble ScheduleZBVZeroBubble ScheduleDualPipeV"))
