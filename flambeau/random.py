"""Random numbers. (Being written.)"""
__all__ = []
