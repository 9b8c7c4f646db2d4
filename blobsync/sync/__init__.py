"""Bringing wanted releases into the local store, and saying how they stand."""
