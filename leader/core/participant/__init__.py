"""One participant, above its latch: who holds the lock takes an epoch, asks the guard, and only then leads.

`machine` decides, purely, about the values of `model`. `claim`, `publish` and `eligibility` say what is asked
of ZooKeeper. `core` joins them with a latch, without threads or I/O of its own. The driver of `leader.queue`
drives it.
"""
