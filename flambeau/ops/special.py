"""Special functions, one row each."""
