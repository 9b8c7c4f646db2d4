"""A YARN cluster for tests: its ResourceManager and NodeManager speak Hadoop's own RPC, and start processes.

Spark's client, ApplicationMaster and executors are the real ones. What decides here is a stand-in, in
Python: Hadoop's servers are in none of the packages that can be installed.
"""
