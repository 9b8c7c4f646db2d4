"""Structured log lines and Prometheus metrics."""
