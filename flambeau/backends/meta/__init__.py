"""The meta device: tensors with a shape, strides and a dtype, and no memory. `backend` is what the registry finds."""
