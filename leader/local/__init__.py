"""Elections without a ZooKeeper, in one process; and the ZooKeeper in memory that they stand on.

- `single`: the elector of a scheduler that has no others; `epoch_file`: what it keeps on disk.
- `memory`: electors that share an election in memory, for tests.
- `zookeeper`: sessions, transactions, connections. Tests may run on it, on a `clock` that moves when told to.
- `tree`: the nodes, and what each request does to them. `replica`: one server's copy, and its watches.
- `session`: one participant's session, as a core wants it.
"""
