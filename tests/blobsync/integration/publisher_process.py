"""A publisher process that tests kill. It prints `ready`, and begins when it reads a line.

Usage: publisher_process.py <endpoint> <bucket> <access key> <secret> <folder> [memory]
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path

from blobsync import S3Config, S3ObjectStore, Secret, collect, publish

MIB = 1 << 20


def main() -> None:
    endpoint, bucket, access_key, secret, folder, *words = sys.argv[1:]
    config = S3Config(
        endpoint_url=endpoint,
        bucket=bucket,
        access_key_id=access_key,
        secret_access_key=Secret(secret),
    )
    if words == ["memory"]:
        _measured(S3ObjectStore(config), Path(folder))
        return
    store = S3ObjectStore(replace(config, multipart_bytes=8 * MIB, part_bytes=5 * MIB))
    while True:
        print("ready", flush=True)  # noqa: T201 - read by the test
        if not sys.stdin.readline():
            return
        made = publish(store, name="p", files=collect(Path(folder), include=["**"]))
        print(made.digest, flush=True)  # noqa: T201


def _measured(store: S3ObjectStore, folder: Path) -> None:
    """Publish a small release, to load all code; then the folder. Prints the growth of memory in MiB."""
    publish(store, name="warm", files=collect(folder, include=["warm"]))
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")  # resets the recorded peak
    publish(store, name="p", files=collect(folder, include=["**"]))
    print((_status("VmHWM") - before) >> 20)  # noqa: T201


def _status(field: str) -> int:
    found = re.search(rf"{field}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) << 10


if __name__ == "__main__":
    main()
