"""The threads that drive a core, and call foreign code (guard, electable) outside of it."""
