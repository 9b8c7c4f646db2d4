"""The kit for hosts of a cluster, on which neither Nimbus nor its dependencies are installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from nimbus.worker.application.startup import build_kit

IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import nimbus.authoring
import nimbus.worker.application.committing
import nimbus.worker.data.signed
import nimbus.worker.driver
import nimbus.worker.sql_task
from blobsync import RetryPolicy
from nimbus.worker.data.signed import SignedStore
names = ("attempt", "pipeline", "release", "token", "nonce", "uri", "output")
SignedStore({**dict.fromkeys(names, ""), "endpoints": [], "inputs": {}})
from blobsync.retry import call_retrying
from blobsync import StoreUnavailableError
from datetime import timedelta
left = [StoreUnavailableError("once")]
def once():
    if left:
        raise left.pop()
    return "kept"
print(call_retrying(once, RetryPolicy(first_wait=timedelta(milliseconds=1)), what="a try"))
"""


def test_kit_is_all_that_a_driver_and_its_upload_import(tmp_path: Path) -> None:
    kit = tmp_path / "kit.zip"
    kit.write_bytes(build_kit())

    done = subprocess.run(
        [sys.executable, "-I", "-S", "-c", IMPORTS, str(kit)],  # -S: without installed packages
        text=True,
        capture_output=True,
        timeout=60,
        check=False,
    )

    assert (done.stdout, done.returncode) == ("kept\n", 0), done.stderr
