"""Elections in virtual time: the real cores of `leader`, everything else simulated; random faults; a checker.

- `simulator.Simulator`: one election; equal seeds give equal histories.
- `runner`: many seeds on several processes; `python -m tests.leader.election`.
- `mutants`: faults built into the cores, which the simulator must find.
- `history`, `laws.check`: the events of an election, simulated or real, and a check of its laws.
"""
