"""Ends the ZooKeeper session of a process the moment that process is dead.

Without it a leader that is killed leads on, for the others, until its session times out. The sentinel is a
small program beside the process, which knows the session's id and password and watches the process through
a pidfd. When the kernel says that the process has ended, and never before, it attaches to the session and
closes it: the leader's nodes vanish within milliseconds (docs/adr/0010-crash-sentinel.md).

Two sides meet over a pipe:

- `leader.sentinel.sentinel`, in the guarded process: starts the program and hands sessions over;
- all other modules are the program, `__main__`. They import the standard library alone, and as little of it
  as they can: the program is started with every scheduler and must be small and quick.

This module imports nothing, because the program passes through it.
"""
