"""The bundle for hosts of a cluster, on which neither Nimbus nor its dependencies are installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from nimbus.worker.application.bootstrap import VARIABLE
from nimbus.worker.application.bundle import build_bundle

IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import nimbus.authoring
import nimbus.worker.data.signed
import nimbus.worker.driver.main
import nimbus.worker.driver.sql_task
from blobsync import RetryPolicy, S3ObjectStore
from nimbus.worker.data.signed import SignedStore
names = ("attempt", "pipeline", "release", "token", "nonce", "uri", "output")
SignedStore({**dict.fromkeys(names, ""), "endpoints": [], "inputs": {}})
from blobsync.retry import call_retrying
from blobsync import BucketUnavailableError
from datetime import timedelta
left = [BucketUnavailableError("once")]
def once():
    if left:
        raise left.pop()
    return "kept"
print(call_retrying(once, RetryPolicy(first_wait=timedelta(milliseconds=1)), what="a try"))
"""


def python(*words: str) -> subprocess.CompletedProcess[str]:
    """Run Python without installed packages."""
    return subprocess.run(
        [sys.executable, "-I", "-S", *words], env={}, text=True, capture_output=True, timeout=60, check=False
    )


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    place = tmp_path / "bootstrap.py"
    place.write_bytes(build_bundle())
    return place


def test_bundle_is_an_archive_that_runs_by_itself_and_is_always_the_same(bundle: Path) -> None:
    assert python(str(bundle)).stderr.endswith(f"KeyError: '{VARIABLE}'\n")
    assert bundle.read_bytes() == build_bundle()


def test_bundle_has_all_that_a_task_and_its_upload_import(bundle: Path) -> None:
    done = python("-c", IMPORTS, str(bundle))

    assert (done.stdout, done.returncode) == ("kept\n", 0), done.stderr
