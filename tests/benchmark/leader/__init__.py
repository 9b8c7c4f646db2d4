"""Compares our hand-over with Curator's and kazoo's: `make bench-leader`."""
