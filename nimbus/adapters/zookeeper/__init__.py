"""The live state in ZooKeeper: paths, records, and the adapters of the ports that need it.

kazoo is spoken only here and in `leader`. Every call goes through `leader.ZooKeeperSession.call`, which has a
timeout; watches only enqueue.
"""
