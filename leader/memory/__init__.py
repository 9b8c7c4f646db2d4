"""A ZooKeeper in the memory of one process: what electors in memory stand on, and what tests are run against.

- `tree`: the nodes, and what each request does to them.
- `replica`: one server's copy of the nodes, and the watches of its clients.
- `zookeeper`: sessions, transactions, connections.
- `session`: one participant's session, as a core wants it.
"""
