"""A process with a syncer: `python -m tests.blobsync.integration.sync_child ENDPOINT BUCKET STORE`.

Each line of its input names the wanted releases, `name@digest ...`. When all of them are ready, it prints
that line. Keys come from the environment, as boto3 reads them.
"""

from __future__ import annotations

import sys
import threading
from datetime import timedelta
from pathlib import Path

from blobsync import LocalStore, ReleaseRef, RetryPolicy, S3Config, S3ObjectStore, Syncer

RETRY = RetryPolicy(first_wait=timedelta(milliseconds=50), max_wait=timedelta(milliseconds=500))
LIMIT_S = 120.0


def main() -> int:
    endpoint, bucket, folder = sys.argv[1:]
    changed = threading.Event()
    store = S3ObjectStore(S3Config(endpoint_url=endpoint, bucket=bucket, max_attempts=1))
    with LocalStore(Path(folder)) as local:
        syncer = Syncer(store, local, retry=RETRY, on_change=lambda _: changed.set(), threads=3)
        syncer.start()
        for line in sys.stdin:
            refs = [ReleaseRef(*word.split("@")) for word in line.split()]
            syncer.want(refs)
            until_ready(syncer, refs, changed)
            sys.stdout.write(line)
            sys.stdout.flush()
        syncer.close(timedelta(seconds=20))
    store.close()
    return 0


def until_ready(syncer: Syncer, refs: list[ReleaseRef], changed: threading.Event) -> None:
    while not all(syncer.readiness().is_ready(ref) for ref in refs):
        if not changed.wait(LIMIT_S):
            raise TimeoutError(f"not ready: {syncer.readiness()}")
        changed.clear()


if __name__ == "__main__":
    sys.exit(main())
