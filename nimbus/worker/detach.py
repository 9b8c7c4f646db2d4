"""Starts a detached command: `detach.py LOG COMMAND...` prints the command's pid.

This is a script, not a module to import: it must fork in a process without threads, and a worker has threads.
The command gets its own session, so the worker's death and its terminal do not affect it. Standard input is
passed on; output is appended to LOG. Uses the standard library only, and starts with `-I -S` in about 20 ms.
"""

import os
import sys


def main(arguments: list[str]) -> int:
    """Fork; the parent prints the child's pid and exits; the child executes the command."""
    log, command = arguments[0], arguments[1:]
    child = os.fork()
    if child:
        sys.stdout.write(f"{child}\n")
        sys.stdout.flush()
        return 0
    os.setsid()
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.close(output)
    os.chdir("/")
    try:
        os.execv(command[0], command)  # noqa: S606 - executing the command is the purpose
    except OSError as exc:
        sys.stderr.write(f"detach: {command[0]}: {exc.strerror}\n")
    os._exit(127)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
