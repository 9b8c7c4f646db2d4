"""Warm Spark drivers: one that has seen no user code waits for an attempt, with a JVM that has run a job.

A warm driver is used once. It has no Spark context: the task's code makes its own, in 0.2 s where a cold
start takes 5 to 10 s. So a context has the properties, folders and name of its attempt from the start.
See ADR 26.
"""
