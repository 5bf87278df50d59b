"""What PyTorch calls experimental in fx."""
