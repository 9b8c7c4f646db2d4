"""Elections without a ZooKeeper, in one process.

- `single`: the elector of a node that has no others, and the file in which it keeps its epochs.
- `memory`: electors that share an election in memory, for tests; the base of `single`.
- `zookeeper`: the ZooKeeper in memory below both: sessions and connections. `tree`: its nodes and watches,
  and what each request does to them.
"""
