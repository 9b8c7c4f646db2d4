"""Checks one definition: `python -I -m nimbus.definition NAME CPU_S BYTES`, see `nimbus.definition.apart`."""

from __future__ import annotations

import gc
import resource
import signal
import sys

from nimbus.definition.apart import REFUSED, SPEC
from nimbus.definition.faults import InvalidDefinitionError
from nimbus.definition.reader import parse_definition


def main(name: str, cpu_s: float, memory_bytes: int) -> int:
    """Check the definition on standard input, within these limits, and print the answer."""
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    gc.disable()  # a definition makes a million objects and no cycles; to look for some takes half the time
    signal.setitimer(signal.ITIMER_PROF, cpu_s)  # its signal ends the process, also within a call into C
    try:
        spec = parse_definition(sys.stdin.buffer.read(), name)
        answer, status = SPEC.encode(spec), 0
    except InvalidDefinitionError as exc:
        answer, status = str(exc).encode(errors="replace"), REFUSED
    except MemoryError:
        answer, status = f"{name} takes more than {memory_bytes >> 20} MiB to check".encode(), REFUSED
    sys.stdout.buffer.write(answer)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))
