"""Kubernetes for tests: an API server, and a kubelet that starts pods as processes."""
