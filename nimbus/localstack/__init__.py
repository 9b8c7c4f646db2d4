"""A whole Nimbus on one machine: a real ZooKeeper, a real S3 server and schedulers, as child processes.

For trying out, for the demo and for tests. Everything listens on loopback and keeps its data below one
folder. Not for production: one ZooKeeper and one disk are not redundant.

Every child dies with the process that started it, whatever kills that one (`tether`); attempts of tasks are
meant to outlive their scheduler, so those are found by a tag in their environment (`tagged`).

Must be used from the main thread: the kernel ties a child to the thread that started it.
"""
