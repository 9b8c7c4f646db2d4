"""Counts the files of `blobsync` whose code runs for one small file, from `publish` until it is ready.

A reader who follows that path must open these files. `python -m tests.benchmark.blobsync.files_passed` prints
them, with the number of calls in each.
"""

from __future__ import annotations

import sys
import tempfile
import threading
from collections import Counter
from datetime import timedelta
from pathlib import Path
from types import FrameType

import blobsync
from blobsync import LocalStore, ReleaseRef, RetryPolicy, Syncer, collect, publish
from blobsync.testing.memory import MemoryObjectStore

_ROOT = Path(blobsync.__file__).parent
_LIMIT = timedelta(seconds=60)


def passed(*, awaited: bool) -> Counter[str]:
    """Calls in each file of the package.

    Args:
        awaited: Fetch with `ensure`, which also creates a folder of the release; otherwise with `want`.
    """
    calls: Counter[str] = Counter()

    def count(frame: FrameType, _event: str, _arg: object) -> None:
        path = Path(frame.f_code.co_filename)
        if path.is_relative_to(_ROOT) and path.parent.name != "testing":
            calls[str(path.relative_to(_ROOT))] += frame.f_code.co_name != "<module>"

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "source"
        source.mkdir()
        (source / "a").write_bytes(b"1" * 100)
        store, ready = MemoryObjectStore(), threading.Event()
        threading.settrace(count)
        sys.settrace(count)
        try:
            made = publish(store, name="p", files=collect(source, include=["**"]))
            ref = ReleaseRef("p", made.digest)
            with LocalStore(Path(folder) / "local") as local:
                syncer = Syncer(
                    store,
                    local,
                    retry=RetryPolicy(),
                    on_change=lambda told: ready.set() if told.is_ready(ref) else None,
                )
                if awaited:
                    syncer.ensure(ref, _LIMIT)
                else:
                    syncer.start()
                    syncer.want([ref])
                    ready.wait(_LIMIT.total_seconds())
                syncer.close(_LIMIT)
        finally:
            sys.settrace(None)
            threading.settrace(None)
    return +calls


if __name__ == "__main__":
    for how in (False, True):
        found = passed(awaited=how)
        lines = [f"{'ensure' if how else 'want'}: {len(found)} files, {found.total()} calls"]
        lines += [f"  {path} {count}" for path, count in sorted(found.items())]
        sys.stdout.write("\n".join(lines) + "\n")
