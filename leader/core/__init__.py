"""What an election decides and asks of ZooKeeper: no threads, no I/O, no clock of its own.

- `latch`: one node in the queue, and whether it is the oldest.
- `participant`: above the latch: epoch, guard, confirmation, the card.
- `lease`: since when the session certainly lives, and so until when the lock is certainly held.
"""
