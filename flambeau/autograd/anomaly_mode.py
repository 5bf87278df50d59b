"""`torch.autograd.anomaly_mode`: PyTorch's name for `anomaly`."""

from .anomaly import detect_anomaly, set_detect_anomaly

__all__ = ["detect_anomaly", "set_detect_anomaly"]
