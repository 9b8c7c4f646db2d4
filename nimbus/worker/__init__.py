"""Runs attempts on one machine. A worker launches a runner for each attempt, and the runner outlives it.

Processes: worker (a thread of a scheduler, or a process) -> runner (one detached process for each attempt) ->
driver (the task's own code) -> JVM. The modules `runner` and `worker` state their guarantees.
"""
