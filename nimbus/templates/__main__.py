"""The template helper: `python -I -m nimbus.templates PLACE`, started by `nimbus.templates.helper`.

Standard input is a socket to the calling process. The program ends when it is closed. PLACE is the descriptor
of a file with the number of the current text: if a limit kills the program, the number identifies the
template.
"""

from __future__ import annotations

import os
import resource
import signal
import socket
import sys
from typing import Any

from nimbus.templates.program import Program
from nimbus.templates.wire import receive_frame, send_frame

MEMORY_BYTES = 256 << 20
"""Limit of address space. Python and Jinja take 30 MiB, compiled templates 100 MiB at most."""


def main(place: int) -> None:
    """Answer questions until the socket is closed."""
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    signal.signal(signal.SIGPROF, signal.SIG_DFL)  # ends the program, also within a call into C
    connection = socket.socket(fileno=sys.stdin.fileno())
    program = Program(lambda number: os.pwrite(place, number.to_bytes(4, "big"), 0))
    send_frame(connection, "ready")
    while (question := receive_frame(connection)) is not None:
        send_frame(connection, _answer(program, question))


def _answer(program: Program, question: dict[str, Any]) -> dict[str, Any]:
    signal.setitimer(signal.ITIMER_PROF, question["cpu_s"])
    try:
        return program.answer(question)
    except Exception as exc:  # noqa: BLE001 - the top of the program: what a template ends in is its own fault
        return {"error": f"the template ended in {type(exc).__name__}: {exc}"[:1000], "at": program.number}
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)


if __name__ == "__main__":
    main(int(sys.argv[1]))
