"""Runs attempts on one machine: a worker launches a runner for each, and the runner outlives it.

Processes: worker (a thread of a scheduler, or a process) -> runner (one detached process for each attempt) ->
driver (the task's own code) -> JVM. What is promised about them stands in `runner` and `worker`.
"""
