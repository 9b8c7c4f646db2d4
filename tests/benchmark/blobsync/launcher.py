"""Starts commands and reports the cost of each: a script, not a module to import.

It is a separate process because Linux includes the parent's memory in the peak memory of a child, and this
process is smaller than any interpreter with libraries. Requests are lines of JSON on standard input
(`commands`, `environment`, `log`); each gets one line as answer. Standard library only, started with `-I -S`.
"""

import json
import os
import sys
import time


def _run(commands: list[list[str]], environment: dict[str, str], log: str) -> dict[str, object]:
    cpu_s, peak_kib = 0.0, 0
    places = [
        (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
        (os.POSIX_SPAWN_OPEN, 1, log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644),
        (os.POSIX_SPAWN_DUP2, 1, 2),
    ]
    began_ns = time.monotonic_ns()
    for command in commands:
        child = os.posix_spawn(command[0], command, environment, file_actions=places)
        _pid, status, usage = os.wait4(child, 0)
        cpu_s += usage.ru_utime + usage.ru_stime
        peak_kib = max(peak_kib, usage.ru_maxrss)
        if status != 0:
            return {"failed": command, "exit": os.waitstatus_to_exitcode(status)}
    return {"wall_s": (time.monotonic_ns() - began_ns) / 1e9, "cpu_s": cpu_s, "peak_bytes": peak_kib << 10}


def main() -> None:
    for line in sys.stdin:
        asked = json.loads(line)
        sys.stdout.write(json.dumps(_run(asked["commands"], asked["environment"], asked["log"])) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
