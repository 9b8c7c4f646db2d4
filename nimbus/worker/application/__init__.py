"""Attempts whose driver runs inside a Spark cluster: submitted, followed, and ended by this worker.

`bootstrap` runs in the cluster. It reaches the board through a scheduler's `nimbus.scheduler.gateway`.
"""
