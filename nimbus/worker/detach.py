"""Becomes a command that is nobody's child: `detach.py LOG COMMAND...`, which prints the command's pid.

A script, not a module to import: it forks in a program without threads, which a worker is not. The command
gets a session of its own, so neither the worker's death nor its terminal reaches it. Standard input is
passed on; output goes to the end of LOG. Standard library only, started with `-I -S`: costs about 20 ms.
"""

import os
import sys


def main(arguments: list[str]) -> int:
    """Fork; the parent says the child's pid and ends; the child becomes the command."""
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
        os.execv(command[0], command)  # noqa: S606 - becoming the command is the purpose
    except OSError as exc:
        sys.stderr.write(f"detach: {command[0]}: {exc.strerror}\n")
    os._exit(127)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
