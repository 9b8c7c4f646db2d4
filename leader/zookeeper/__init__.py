"""The only part of `leader` that knows kazoo: a session with care, and requests answered over it."""
