"""Measures the leader's engine on a real ZooKeeper; docs/benchmarks.md explains the figures."""
