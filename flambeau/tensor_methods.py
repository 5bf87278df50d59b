"""Python's protocols on Tensor: numbers, copying, pickling. (Being written.)"""
