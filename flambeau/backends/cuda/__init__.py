"""Tensors on NVIDIA GPUs. Nothing here is imported until a tensor asks for it; `backend` is what the registry finds.

(In `sys.modules` PyTorch's switches stand in the place of this file, see ../flags.py: torch.backends.cuda.)
"""
