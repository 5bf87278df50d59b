"""From operations to text."""
