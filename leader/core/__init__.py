"""The decisions of an election, and its requests to ZooKeeper. No threads, no I/O; the clock is passed in.

- `latch`: one node in the lock queue, and whether it is the oldest.
- `participant`: above the latch: epoch, guard, confirmation, the member node.
- `lease`: the session liveness, and from it the time until which the lock is certainly held.
"""
