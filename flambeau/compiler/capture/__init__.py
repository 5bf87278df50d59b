"""A call that is written down once, and what it read."""
