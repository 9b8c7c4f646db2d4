"""Uses a local store in an endless loop until it is killed.

Not a test: `test_local_kills` starts it with `Forks`.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from blobsync.errors import BlobMissingError, GcRefusedError, InvalidLayoutError
from blobsync.local.gc import gc
from blobsync.local.store import LocalStore
from tests.blobsync.chaos.forks import fork_workers
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


def work(words: list[str]) -> None:
    """Work until killed. If two workers collect, each may remove files that the other has just fetched.

    Args:
        words: Root, seed.
    """
    root, seed = words
    known, chance = releases(), random.Random(int(seed))
    with LocalStore(Path(root)) as local:
        while True:
            try:
                use(local, known, chance)
            except (BlobMissingError, GcRefusedError, InvalidLayoutError):
                continue


if __name__ == "__main__":
    fork_workers(work)
