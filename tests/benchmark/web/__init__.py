"""Measures pages and streams of events; docs/benchmarks.md explains the figures."""
