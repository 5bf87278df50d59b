"""Running results along a dimension: cumsum and its family; softmax."""
