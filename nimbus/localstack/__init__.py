"""A whole Nimbus on one machine: a real ZooKeeper, a real S3 server and schedulers, as child processes.

For first steps, for the demo and for tests. Everything listens on loopback and stores its data below one
folder. Not for production: one ZooKeeper and one disk are not redundant.

Every child dies with the process that started it, however that one ends (`nimbus.die_with_parent`). Attempts
of tasks must outlive their scheduler, so they are found by a tag in their environment (`folder`).

Must be used from the main thread: the kernel ties a child to the thread that started it.
"""
