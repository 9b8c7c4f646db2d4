"""Uses blobsync as a program would: with a warm client, a local store, and a syncer.

Only this file and `our_script` call the library.
"""

from __future__ import annotations

import gc
import os
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Literal

from blobsync import (
    LocalStore,
    Readiness,
    ReleaseRef,
    ReleaseState,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    Syncer,
    collect,
    publish,
)

Digests = Literal["blake3", "sha256"]

_LIMIT = timedelta(minutes=30)
_HOPELESS = {ReleaseState.ABSENT, ReleaseState.CORRUPT, ReleaseState.UNAVAILABLE}


def object_store() -> S3ObjectStore:
    """The store that the environment names. All contenders get the same environment."""
    return S3ObjectStore(
        S3Config(
            endpoint_url=os.environ["BENCH_ENDPOINT"],
            bucket="releases",
            access_key_id=os.environ["AWS_ACCESS_KEY_ID"],
            secret_access_key=os.environ["AWS_SECRET_ACCESS_KEY"],  # type: ignore[arg-type]
        )
    )


class OurSide:
    """One local store at a time, with its syncer.

    Args:
        warm: Connect now, like a program that has run for some time.
    """

    def __init__(self, *, warm: bool = True) -> None:
        self._store = object_store()
        if warm:
            self._store.check()
        self._local: LocalStore | None = None
        self._syncer: Syncer | None = None
        self._changed = threading.Condition()
        self._ready: Readiness | None = None

    def publish(self, name: str, folder: Path) -> str:
        """Publish all files of a folder. Returns the digest of the release."""
        return publish(self._store, name=name, files=collect(folder, include=["**/*"])).digest

    def open(self, root: Path, digests: Digests = "blake3") -> None:
        """Open a store, and start its syncer.

        Args:
            digests: How large files are verified: by BLAKE3 alone, or by SHA-256 as well.
        """
        self._local = LocalStore(root, verify="sha256" if digests == "sha256" else "name")
        self.start()

    def start(self) -> None:
        """Replace the syncer by a new one, which knows nothing."""
        assert self._local is not None
        self._stop()
        self._ready = None
        self._syncer = Syncer(self._store, self._local, retry=RetryPolicy(), on_change=self._on_change)
        self._syncer.start()

    def want(self, ref: ReleaseRef) -> None:
        """Wait until all files of a release are on this host, verified and durable."""
        assert self._syncer is not None
        self._syncer.want({ref})
        until = time.monotonic() + _LIMIT.total_seconds()
        with self._changed:
            while not self._is_ready(ref):
                if not self._changed.wait(until - time.monotonic()):
                    raise TimeoutError(f"{ref} was not ready within {_LIMIT}")

    def tree(self, ref: ReleaseRef) -> Path:
        """The release as a folder."""
        assert self._syncer is not None
        return self._syncer.ensure(ref, _LIMIT)

    def ask_readiness(self, calls: int) -> bool:
        """Query readiness `calls` times. Returns whether everything was ready each time."""
        assert self._syncer is not None
        ready = True
        for _ in range(calls):
            ready = self._syncer.readiness().all_ready and ready
        return ready

    def open_only(self, root: Path) -> None:
        """Open a store and nothing else."""
        self._local = LocalStore(root)

    def verify(self, ref: ReleaseRef) -> None:
        """Hash all files of a release again."""
        assert self._local is not None
        self._local.verify(ref, on_progress=lambda *_args: None)

    def close(self) -> None:
        """Close the syncer and the store."""
        self._stop()
        if self._local is not None:
            self._local.close()
            self._local = None
        gc.collect()  # so that the memory of the next round does not contain garbage of this one

    def _stop(self) -> None:
        if self._syncer is not None:
            self._syncer.close(timedelta(seconds=10))
            self._syncer = None

    def _on_change(self, readiness: Readiness) -> None:
        with self._changed:
            self._ready = readiness
            self._changed.notify_all()

    def _is_ready(self, ref: ReleaseRef) -> bool:
        found = None if self._ready is None else self._ready.releases.get(ref)
        if found is not None and found.state in _HOPELESS:
            raise RuntimeError(f"{ref} is {found.state}: {found.reason}")
        return found is not None and found.state is ReleaseState.READY
