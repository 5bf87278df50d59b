"""torch.autograd.graph. (Being written.)"""
from collections import namedtuple
GradientEdge = namedtuple("GradientEdge", "node output_nr ownership_token", defaults=(None,))
