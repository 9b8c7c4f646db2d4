"""Ends the ZooKeeper session of a process the moment that process is dead.

Without it, the others see a leader that was killed as the leader until its session times out. The sentinel is
a small program beside the process. It has the session's id and password, and watches the process through a
pidfd. When the kernel says that the process has ended, and never before, it attaches to the session and
closes it: the leader's nodes vanish within milliseconds (docs/adr/0010-crash-sentinel.md).

- `sentinel`: in the guarded process. Starts the program and hands sessions over to it through a pipe.
- `wire`: the lines in that pipe, and the frames that end a session.
- `__main__`, `program`, `ensemble`: the program. These and `wire` import the standard library alone, and
  little of it: the program is started with every scheduler and must be small and quick.

This module imports nothing, because the program loads it.
"""
