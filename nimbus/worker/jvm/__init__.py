"""Kept Spark JVMs: the JVM of an attempt that ended cleanly serves the next one with the same key.

Each attempt is a Python process of its own, with a context, an application, folders, a log and a gateway of
its own. Each JVM has a keeper, which gives it to one attempt after the other. See ADR 26.
"""
