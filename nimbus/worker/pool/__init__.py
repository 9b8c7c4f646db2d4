"""Runs many attempts with few processes: one executor for the pooled tasks of a worker, a child for each.

Processes: worker -> executor (claims, beats and ends of all, over one session) -> zygote (forks) -> a driver
for each attempt. The executor outlives its worker until its attempts have ended; drivers die with the zygote,
and the zygote with the executor. See docs/adr/0025.
"""
