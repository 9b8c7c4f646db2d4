"""Runs a command that the kernel kills when its parent dies: `die_with_parent.py PARENT_PID COMMAND...`.

A script, not a module to import: it asks the kernel for SIGKILL at the death of its parent, then becomes the
command. This is a separate program, and not a `preexec_fn`, because Python code between fork and exec can
deadlock in a process with threads. Standard library only, started with `-I -S`: it costs about 20 ms.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> int:
    """Tie this process to its parent and become the command. Returns only if that fails."""
    parent, command = int(arguments[0]), arguments[1:]
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0) != 0:
        sys.stderr.write(f"die_with_parent: prctl: {os.strerror(ctypes.get_errno())}\n")
        return 126
    if os.getppid() != parent:  # the parent died before prctl, so the kernel sends no signal
        return 125
    try:
        os.execvp(command[0], command)  # noqa: S606 - becoming the command is the purpose
    except OSError as exc:
        sys.stderr.write(f"die_with_parent: {command[0]}: {exc.strerror}\n")
    return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
