"""Order: sort, topk, searchsorted, unique."""
