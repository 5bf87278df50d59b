"""Real and imaginary parts, conjugation, polar form."""
