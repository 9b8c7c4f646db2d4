"""Runs many attempts with few processes: one executor for a worker's pooled tasks, one child for each.

Processes: worker -> executor (all claims, heartbeats and ENDs, over one session) -> zygote (forks) -> a
driver for each attempt. The executor outlives its worker until its attempts have ended; drivers die with the
zygote, and the zygote with the executor. See docs/adr/0025.
"""
