"""Warm Spark drivers: a driver without user code, whose JVM has run a job, waits for an attempt.

A warm driver is used once. It has no Spark context: the task's code creates one in 0.2 s, while a cold
start takes 5 to 10 s. So a context has the properties, folders and name of its attempt from the start.
See ADR 26.
"""
