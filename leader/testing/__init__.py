"""Tools for tests of whatever leads: faults on the wire, a ZooKeeper in memory, a simulator, a checker.

- `memory.MemoryZooKeeper` and `clock.VirtualClock`: a ZooKeeper for tests, on a clock of theirs.
- `history.check`: judges what happened in an election, simulated or real.
- `simulator.Simulator`: elections in virtual time under random faults; `python -m leader.testing.simulator`.
- `proxy`: a TCP proxy that fails on purpose.
"""
