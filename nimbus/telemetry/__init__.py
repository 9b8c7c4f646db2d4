"""What operators see without asking: structured log lines and Prometheus metrics."""
