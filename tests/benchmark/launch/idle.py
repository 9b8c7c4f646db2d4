"""Measures the memory of an idle leader without a worker: `... tests.benchmark.launch.idle [--before REV]`.

PSS of its process and helpers, in MiB, some seconds after it leads, and after the first run.
"""

from __future__ import annotations

import argparse
import contextlib
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.benchmark.engine.revision import Revision, checkout_of, this_checkout
from tests.benchmark.tasks.marks import count_ends
from tests.benchmark.tasks.ours import Ask, our_stack, until
from tests.benchmark.tasks.shapes import task_document
from tests.benchmark.tasks.usage import pss_mib

_SETTLE_S = 8.0


def _measured(revision: Revision, place: Path) -> dict[str, float]:
    marks = place / f"marks-{revision.label}"
    with our_stack(revision, place, Ask(workers=1)) as stack:
        stack.start()
        scheduler = next(pid for name, pid in stack.ask("pids").items() if name.startswith("scheduler"))
        time.sleep(_SETTLE_S)
        found = {"idle": pss_mib(scheduler)}
        stack.publish("once", {"only": task_document(marks, [])})
        run = stack.post("/runs", {"pipeline": "once"})["run_id"]
        until("the end of the task", 60, lambda: count_ends(marks))
        stack.ended(run, 60)
        time.sleep(_SETTLE_S)
        found["after a run"] = pss_mib(scheduler)
        return found


def main(words: list[str] | None = None) -> int:
    """Run the benchmark, and print a line for each commit."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmark.launch.idle", description=__doc__)
    parser.add_argument("--before", metavar="REV", help="a commit to compare with")
    options = parser.parse_args(words)
    place = Path(tempfile.mkdtemp(prefix="nimbus-bench-idle-"))
    with contextlib.ExitStack() as stack:
        stack.callback(shutil.rmtree, place, ignore_errors=True)
        revisions = [this_checkout()]
        if options.before is not None:
            revisions.insert(0, stack.enter_context(checkout_of(options.before, place)))
        for revision in revisions:
            found = _measured(revision, place)
            shown = ", ".join(f"{what} {mib:.1f} MiB" for what, mib in found.items())
            sys.stdout.write(f"{revision.label}: {shown}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
