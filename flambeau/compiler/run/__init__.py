"""Programs that run."""
