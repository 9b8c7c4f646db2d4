"""Closes the ZooKeeper session of a process as soon as that process is dead.

Without it, the nodes of a killed leader stay until its session times out. The sentinel is a small program
beside the process. It has the session's id and password, and watches the process through a pidfd. When the
kernel reports that the process has ended, and never before, the sentinel attaches to the session and closes
it. ZooKeeper then deletes the leader's nodes within milliseconds (docs/adr/0010-crash-sentinel.md).

- `sentinel`: runs in the guarded process. It starts the program and writes sessions to a pipe.
- `wire`: the lines in that pipe, and the frames that close a session.
- `__main__`, `program`, `ensemble`: the program. These and `wire` import only the standard library, and
  little of it: the program starts with every scheduler and must be small and quick.

This module imports nothing, because the program loads it.
"""
