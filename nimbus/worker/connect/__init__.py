"""Spark Connect: the server of a worker, and the session of an attempt."""
