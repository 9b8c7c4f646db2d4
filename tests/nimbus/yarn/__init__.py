"""A YARN cluster for tests: its ResourceManager and NodeManager speak Hadoop's own RPC, and start processes.

Spark's client, ApplicationMaster and executors are real. The ResourceManager and NodeManager are replaced by
Python code, because no installable package contains Hadoop's servers.
"""
