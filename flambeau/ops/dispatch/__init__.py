"""`__torch_dispatch__`: operations as modes and tensor subclasses below autograd see them, by PyTorch's internal names."""
