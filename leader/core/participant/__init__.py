"""One participant, above its latch: it takes the lock and an epoch, asks the guard, and only then leads.

`machine` decides with pure functions over the values of `model`. `claim`, `publish` and `eligibility` have
the requests to ZooKeeper. `term` is the confirmed term. `core` joins them with a latch, without threads or
I/O. `leader.runtime.driver` runs the core on a thread.
"""
