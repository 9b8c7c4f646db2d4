"""The live state in ZooKeeper: paths, records, and the adapters of the ports that need it.

Only this package and `leader` use kazoo. Every call goes through `leader.ZooKeeperSession.call`, which has a
timeout; watches only enqueue.
"""
