"""An object store in memory, for tests of this package and of programs that use it."""
