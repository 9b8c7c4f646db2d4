"""Commands: what each kind of them does, and what it is refused for."""
