"""A running process that uses blobsync with a warm client: `python -m tests.benchmark.blobsync.our_host`.

Reads requests as lines of JSON: `do` names the operation, the other fields are its arguments. Each answer has
the cost of the operation: wall time, CPU time, peak memory and growth of memory.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from blobsync import ReleaseRef
from blobsync.malloc import give_back_large_blocks
from tests.benchmark.blobsync.floor import Floor
from tests.benchmark.blobsync.our_side import OurSide

_KIB = 1 << 10


def _status_kib(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field):
            return int(line.split()[1])
    raise LookupError(field)


def _measured(work: Callable[[], object]) -> dict[str, Any]:
    """Run an operation, and return its cost."""
    Path("/proc/self/clear_refs").write_text("5")  # resets the recorded peak
    before_kib, cpu_s = _status_kib("VmRSS"), time.process_time()
    began_ns = time.monotonic_ns()
    result = work()
    wall_s = (time.monotonic_ns() - began_ns) / 1e9
    peak_kib = _status_kib("VmHWM")
    return {
        "wall_s": wall_s,
        "cpu_s": time.process_time() - cpu_s,
        "peak_bytes": peak_kib * _KIB,
        "grown_bytes": (peak_kib - before_kib) * _KIB,
        "result": str(result),
    }


class _Host:
    """The objects of this process: blobsync, and the floor that it is compared with."""

    def __init__(self) -> None:
        self.side = OurSide()
        self.floor: Floor | None = None

    def prepare_floor(self, asked: dict[str, Any]) -> None:
        self.floor = Floor(asked["bucket"], asked["objects"], asked["digest_by"])

    def run_floor(self, folder: Path) -> None:
        assert self.floor is not None
        self.floor.run(folder)


def _work(host: _Host, asked: dict[str, Any]) -> Callable[[], object]:
    side = host.side
    ref = ReleaseRef(asked.get("name", ""), asked.get("digest", ""))
    path = Path(asked.get("path", ""))
    calls: dict[str, Callable[[], object]] = {
        "publish": lambda: side.publish(ref.name, path),
        "open": lambda: side.open(path, asked.get("digests", "blake3")),
        "open_only": lambda: side.open_only(path),
        "start": side.start,
        "want": lambda: side.want(ref),
        "tree": lambda: side.tree(ref),
        "readiness": lambda: side.ask_readiness(asked["calls"]),
        "verify": lambda: side.verify(ref),
        "close": side.close,
        "prepare_floor": lambda: host.prepare_floor(asked),
        "floor": lambda: host.run_floor(path),
    }
    return calls[asked["do"]]


def main() -> int:
    # Only answers go to standard output. Everything else, such as log lines, goes to standard error.
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

    def answer(document: dict[str, Any]) -> None:
        answers.write(json.dumps(document) + "\n")
        answers.flush()

    give_back_large_blocks()  # as Nimbus's own programs do when they start
    host = _Host()
    for line in sys.stdin:
        try:
            answer(_measured(_work(host, json.loads(line))))
        except Exception as failed:  # noqa: BLE001 - every failure is sent to the requesting process
            answer({"error": f"{type(failed).__name__}: {failed}"})
    host.side.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
