"""What checkpoints, data loading and other libraries ask of NumPy."""
