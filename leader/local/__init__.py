"""Elections without a ZooKeeper, in one process.

- `single`: the elector of a node without others, and the file in which it stores its epochs.
- `memory`: electors that share an election in memory, for tests; the base of `single`.
- `zookeeper`: the ZooKeeper in memory that both use: its nodes and watches, the effect of each request on
  them, sessions and connections.
"""
