"""Measures the leader's engine on a real ZooKeeper; docs/benchmarks.md says what the figures mean."""
