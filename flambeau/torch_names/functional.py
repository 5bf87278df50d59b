"""`torch.functional`: the functions that PyTorch writes in Python, under the name some programs import them from."""

from __future__ import annotations

from typing import Any

_NAMES = frozenset("""
    atleast_1d atleast_2d atleast_3d align_tensors broadcast_shapes broadcast_tensors cartesian_prod block_diag
    cdist chain_matmul einsum istft lu norm meshgrid pca_lowrank split stft svd_lowrank tensordot unique
    unique_consecutive unravel_index
    """.split())
__all__ = sorted(_NAMES - {"align_tensors"})


def __getattr__(name: str) -> Any:
    if name != "F" and name not in _NAMES:
        raise AttributeError(f"module 'flambeau.functional' has no attribute '{name}'")
    import flambeau
    return flambeau.nn.functional if name == "F" else getattr(flambeau, name)
