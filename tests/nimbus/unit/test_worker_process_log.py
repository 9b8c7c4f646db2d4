"""The log of a runner or an executor, on a full disk, and the end of its threads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nimbus.worker.host.process_log import EXIT_FAILED

PROGRAM = """
import structlog, threading, time
from nimbus.worker.host.process_log import configure_log, end_with_any_thread
configure_log()
end_with_any_thread()
structlog.get_logger().error("the_disk_is_full")
print("logged", flush=True)
threading.Thread(target=lambda: [].pop()).start()
time.sleep(600)
"""


def test_process_logs_to_a_full_disk_and_ends_with_any_of_its_threads() -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, stderr=full, timeout=60, check=False
        )

    assert (done.stdout, done.returncode) == (b"logged\n", EXIT_FAILED)
