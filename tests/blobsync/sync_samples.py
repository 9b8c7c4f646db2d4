"""An object store with releases, and syncers of a local store that tests can reopen."""

from __future__ import annotations

from collections.abc import Collection
from datetime import timedelta
from pathlib import Path
from typing import Any

from blobsync import LocalStore, ObjectStore, Readiness, ReleaseRef, ReleaseState, RetryPolicy, Syncer
from blobsync.bucket import keys
from blobsync.release.layout import Pack, StoredObject
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.local_store_samples import Sample, sample, sha

QUICK = RetryPolicy(first_wait=timedelta(milliseconds=5), max_wait=timedelta(milliseconds=50))
NEVER = timedelta(days=1)
SOON = timedelta(seconds=20)


def key_of(item: StoredObject) -> str:
    """Its key in the object store."""
    return keys.pack(item.name) if isinstance(item, Pack) else keys.blob(item.name)


def put(store: ObjectStore, release: Sample) -> ReleaseRef:
    """Publish a sample unchanged."""
    ref = release.manifest.ref
    for item, data in release.objects.items():
        store.write(key_of(item), data)
    store.write(keys.layout(ref.name, ref.digest), release.layout.encode())
    store.write(keys.manifest(ref.name, ref.digest), release.manifest.canonical)
    return ref


class Rig:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store = MemoryObjectStore()
        self.seen: list[Readiness] = []
        self.samples: dict[ReleaseRef, Sample] = {}
        self._open: list[tuple[Syncer, LocalStore]] = []

    def publish(self, name: str, *, members: int = 1, **files: str) -> ReleaseRef:
        """A release of small files, by default each in its own pack."""
        return self.put(
            sample({file: text.encode() for file, text in files.items()}, name=name, members=members)
        )

    def put(self, release: Sample) -> ReleaseRef:
        """Publish a sample."""
        ref = put(self.store, release)
        self.samples[ref] = release
        return ref

    def item(self, ref: ReleaseRef, file: str) -> StoredObject:
        """The object with a file, for a release with one file in each pack."""
        release = self.samples[ref]
        data = release.files[file]
        for item, stored in release.objects.items():
            if stored == data or (isinstance(item, Pack) and bytes.fromhex(sha(data)) in stored):
                return item
        raise LookupError(file)

    def key(self, ref: ReleaseRef, file: str) -> str:
        """Its key."""
        return key_of(self.item(ref, file))

    def path(self, ref: ReleaseRef, file: str) -> Path:
        """Its file on disk."""
        item = self.item(ref, file)
        kind = "packs" if isinstance(item, Pack) else "blobs"
        return self.folder / "local" / kind / item.name.removeprefix("b3-")[:2] / item.name

    def syncer(
        self,
        *wanted: ReleaseRef,
        scrub: timedelta = NEVER,
        look: timedelta = NEVER,
        retry: RetryPolicy = QUICK,
        start: bool = True,
        local: LocalStore | None = None,
        **more: Any,
    ) -> Syncer:
        """A syncer that wants the given releases, in this order."""
        local = local if local is not None else LocalStore(self.folder / "local")
        made = Syncer(
            self.store,
            local,
            retry=retry,
            on_change=self.seen.append,
            scrub_interval=scrub,
            look_interval=look,
            **more,
        )
        self._open.append((made, local))
        if start:
            made.start()
            made.want(wanted)
        return made

    def stop(self) -> None:
        """Close all syncers."""
        for syncer, local in self._open:
            syncer.close(SOON)
            local.close()
        self._open.clear()


def state_of(syncer: Syncer, ref: ReleaseRef) -> ReleaseState | None:
    """The state of a release; None: not known yet."""
    found = syncer.readiness().releases.get(ref)
    return None if found is None else found.state


def lacks(syncer: Syncer, ref: ReleaseRef, files: Collection[str]) -> bool:
    """Whether exactly these files are reported as missing."""
    found = syncer.readiness().releases.get(ref)
    return found is not None and {item.path for item in found.missing} == set(files)
