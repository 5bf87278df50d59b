"""Where tensors come from: factories, Python data, random numbers."""
