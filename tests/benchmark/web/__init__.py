"""Measures pages and streams of events; docs/benchmarks.md says what the figures mean."""
