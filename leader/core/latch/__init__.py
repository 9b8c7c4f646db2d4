"""The latch: one node in the queue, and the knowledge of whether it is the oldest.

`machine` decides, purely, about the values of `model`. `steps` says what is asked of ZooKeeper. `core` joins
the two, without threads or I/O of its own. `leader.latch` puts a core on a thread. `leader.core.participant`
wraps the same core and adds epoch, guard and confirmation.
"""
