"""The latch: one node in the lock queue, and whether it is the oldest.

`machine` decides with pure functions over the values of `model`. `steps` has the requests to ZooKeeper.
`core` joins the two, without threads or I/O. `leader.core.participant` wraps the same core and adds epoch,
guard and confirmation. `leader.runtime.driver` runs this core for a `LeaderLatch`, or the participant's core.
"""
