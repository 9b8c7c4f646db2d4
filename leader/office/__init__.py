"""The office above the latch: who holds the lock takes an epoch, asks the guard, and only then leads.

`machine` decides, purely. `claim`, `announcement`, `card` and `control` say what is asked of ZooKeeper.
`core` joins them with a latch, without threads or I/O of its own. `leader.queue` has a loop drive it.
"""
