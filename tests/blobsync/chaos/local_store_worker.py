"""Uses a local store in an endless loop until it is killed. Forks a worker for each stdin line `<root>
<seed>`.

Not a test: started by `test_local_kills`. Forking spares each worker the start of an interpreter.
"""

from __future__ import annotations

import os
import random
import sys
import traceback
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from blobsync.errors import BlobMissingError, GcRefusedError, InvalidLayoutError
from blobsync.local.gc import gc
from blobsync.local.store import LocalStore
from tests.blobsync.local_store_samples import Sample, bring, sample

_LARGE = bytes(range(256)) * (18 << 10)
_CHUNKED = b"".join(bytes([number]) * (1 << 20) for number in range(17))


def releases() -> list[Sample]:
    """Releases that share files and packs, like versions of one pipeline."""
    common = {f"lib/m{number}.py": b"common %d" % number * 200 for number in range(20)}
    found = []
    for number in range(5):
        files = {**common, f"lib/m{number}.py": b"changed %d" % number, "run.sh": b"#! %d" % number}
        files["data"] = _CHUNKED if number == 4 else bytes([number]) + _LARGE
        found.append(sample(files, executable={"run.sh"}, members=7))
    return found


def use(local: LocalStore, known: Sequence[Sample], chance: random.Random) -> None:
    """Do one random action of a user of a store."""
    release = chance.choice(known)
    match chance.randrange(8):
        case 0:
            keep = {item.manifest.digest for item in chance.sample(known, 2)}
            gc(local, keep, grace=timedelta(0), max_share=1.0)
        case 1:
            local.hold({release.manifest.digest})
        case 2:
            if local.kept(release.manifest.ref) is not None:
                local.verify(release.manifest.ref)
        case _:
            for item, data in release.objects.items():
                bring(local, item, data)
            local.keep(release.known)
            local.materialise(release.manifest.ref)


def work(root: Path, seed: int) -> None:
    """Work until killed. If two workers collect, each may remove files that the other has just fetched."""
    known, chance = releases(), random.Random(seed)
    with LocalStore(root) as local:
        while True:
            try:
                use(local, known, chance)
            except (BlobMissingError, GcRefusedError, InvalidLayoutError):
                continue


def say(number: int) -> None:
    """Send a line to the test."""
    sys.stdout.write(f"{number}\n")
    sys.stdout.flush()


def main() -> None:
    """Fork workers, and print their process ids, until stdin ends."""
    for line in sys.stdin:
        root, seed = line.split()
        pid = os.fork()
        if pid == 0:
            try:
                work(Path(root), int(seed))
            except BaseException:  # noqa: BLE001 - the parent sees the exit code; it never ends by itself
                traceback.print_exc()
            finally:
                os._exit(3)
        say(pid)
        _, status = os.waitpid(pid, 0)
        say(os.waitstatus_to_exitcode(status))


if __name__ == "__main__":
    main()
