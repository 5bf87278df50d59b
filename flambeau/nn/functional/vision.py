"""Resizing, sampling at points, rearranging of pixels and channels."""

from ...ops.layers.resample import (
    affine_grid,
    channel_shuffle,
    grid_sample,
    interpolate,
    pixel_shuffle,
    pixel_unshuffle,
    upsample,
    upsample_bilinear,
    upsample_nearest,
)

native_channel_shuffle = channel_shuffle
GRID_SAMPLE_INTERPOLATION_MODES = {"bilinear": 0, "nearest": 1, "bicubic": 2}
GRID_SAMPLE_PADDING_MODES = {"zeros": 0, "border": 1, "reflection": 2}

__all__ = ["affine_grid", "channel_shuffle", "grid_sample", "interpolate", "native_channel_shuffle", "pixel_shuffle",
           "pixel_unshuffle", "upsample", "upsample_bilinear", "upsample_nearest", "GRID_SAMPLE_INTERPOLATION_MODES",
           "GRID_SAMPLE_PADDING_MODES"]
