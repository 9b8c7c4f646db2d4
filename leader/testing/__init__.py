"""Tools for tests of whatever leads: faults on the wire, a clock, a simulator, a checker.

- `clock.VirtualClock`: for `leader.memory.zookeeper.MemoryZooKeeper`, a ZooKeeper on a clock of your own.
- `history.check`: judges what happened in an election, simulated or real.
- `simulator.Simulator`: elections in virtual time under random faults; `python -m leader.testing.simulator`.
- `proxy`: a TCP proxy that fails on purpose.
"""
