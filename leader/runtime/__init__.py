"""The two threads of an elector: one runs the core, the other calls foreign code (guard, electable)."""
