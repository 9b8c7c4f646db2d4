"""Publishing: no incomplete release is visible, no object is sent again, no wrong bytes are stored."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from blobsync import (
    BlobNotFoundError,
    BucketAccessDeniedError,
    BucketUnavailableError,
    CorruptBlobError,
    InvalidManifestError,
    LocalStoreError,
    ObjectInfo,
    Progress,
    PublishedRelease,
    RetryPolicy,
    SourceChangedError,
    SourceFile,
    UnsafeSourceError,
    WorkPhase,
    collect,
    fetch_manifest,
    list_releases,
    publish,
)
from blobsync.bucket import keys
from blobsync.bucket.ports import OnProgress, ignore_progress
from blobsync.bucket.releases import (
    COMPRESSED_BYTES,
    PublicationMark,
    fetch_layout,
    published,
    stored_manifest,
)
from blobsync.errors import InvalidLayoutError
from blobsync.release.manifest import CHUNK_BYTES, PACKED_BYTES, Role
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.release_reader import read_release

QUICK = RetryPolicy(
    first_wait=timedelta(milliseconds=1), max_wait=timedelta(milliseconds=5), deadline=timedelta(seconds=60)
)
LARGE = PACKED_BYTES + 1
CHUNKED = CHUNK_BYTES + 1


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder of four small files, of which two are equal, and a large one."""
    tree = {"main.py": b"1", "lib/util.py": b"2", "lib/copy.py": b"2", "empty": b"", "big": b"x" * LARGE}
    for name, data in tree.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    return tmp_path / "src"


def upload(store: MemoryObjectStore, root: Path, name: str = "p", **options: object) -> PublishedRelease:
    given = {"retry": QUICK, "published_by": "test", **options}
    return publish(store, name=name, files=collect(root, include=["**"]), **given)  # type: ignore[arg-type]


def on_disk(root: Path) -> dict[str, bytes]:
    return {str(path.relative_to(root)): path.read_bytes() for path in root.rglob("*") if path.is_file()}


def visible(store: MemoryObjectStore) -> list[str]:
    return [info.key for info in store.list("releases/")]


def test_release_has_the_bytes_of_the_files(root: Path) -> None:
    (root / "chunked").write_bytes(os.urandom(CHUNKED))
    store = MemoryObjectStore()

    made = upload(store, root)

    assert read_release(store, "p", made.digest) == on_disk(root)
    assert fetch_manifest(store, "p", made.digest) == made.manifest
    assert fetch_layout(store, "p", made.digest) == made.layout


def test_manifest_is_written_last_after_layout_and_history(root: Path) -> None:
    store = MemoryObjectStore()

    made = upload(store, root)

    lease, *objects, layout, history, manifest = store.writes
    assert lease.startswith(keys.PUBLISH_LEASES)
    (big,) = [item for item in made.manifest.artifacts if item.path == "big"]
    assert sorted(objects) == [keys.blob(big.sha256), keys.pack(made.layout.packs[0].name)]
    assert layout == keys.layout("p", made.digest)
    assert history.startswith(keys.histories("p")) and history.endswith(made.digest)
    assert manifest == keys.manifest("p", made.digest)


def test_report_says_what_was_sent(root: Path) -> None:
    store = MemoryObjectStore()

    made = upload(store, root)

    assert (made.uploaded_count, made.reused_count) == (4, 0)  # two of the five files are equal
    assert (made.uploaded_bytes, made.reused_bytes) == (LARGE + 2, 0)
    stored = [info for info in store.list("") if not info.key.startswith(keys.PUBLISH_LEASES)]
    assert made.sent_bytes == sum(info.size_bytes for info in stored)
    assert made.packs_written == made.layout.packs
    assert (made.layout.published_by, made.dry_run) == ("test", False)


def test_history_names_each_publication_newest_first(root: Path) -> None:
    store = MemoryObjectStore()
    first = upload(store, root)
    (root / "main.py").write_text("changed")
    second = upload(store, root)

    assert {entry.digest for entry in published(store, "p")} == {first.digest, second.digest}
    old, new = (datetime(2020, 1, day, tzinfo=UTC) for day in (1, 2))
    for at in (new, old):
        store.write(keys.history("q", at, first.digest), b"")
    store.write(keys.histories("q") + "20209999T000000Z-" + first.digest, b"")
    store.write(keys.histories("q") + "readme", b"")
    assert published(store, "q") == [PublicationMark(new, first.digest), PublicationMark(old, first.digest)]


def test_publishing_again_sends_only_what_is_new(root: Path) -> None:
    store = MemoryObjectStore()
    first = upload(store, root)
    store.writes.clear()
    (root / "extra.py").write_bytes(b"3")

    again = upload(store, root)

    assert (again.uploaded_count, again.reused_count) == (1, 4)
    assert (again.uploaded_bytes, again.reused_bytes) == (1, LARGE + 2)
    assert set(first.layout.packs) < set(again.layout.packs)
    assert [key for key in store.writes if key.startswith(keys.BLOBS)] == []
    assert list_releases(store, "p") == sorted([first.digest, again.digest])
    assert read_release(store, "p", again.digest) == on_disk(root)


def test_publishing_the_same_again_sends_no_content(root: Path) -> None:
    store = MemoryObjectStore()
    first = upload(store, root)

    again = upload(store, root)

    assert (again.digest, again.uploaded_count, again.packs_written) == (first.digest, 0, ())
    assert again.layout.packs == first.layout.packs


@pytest.mark.parametrize("damage", ["lost", "other size"])
def test_what_is_not_there_with_its_size_is_sent_again(root: Path, damage: str) -> None:
    store = MemoryObjectStore()
    made = upload(store, root)
    (big,) = [f"blobs/{item.sha256}" for item in made.manifest.artifacts if item.path == "big"]
    for key in (big, keys.pack(made.layout.packs[0].name)):
        if damage == "lost":
            store.delete(key)
        else:
            store.write(key, b"cut short")

    again = upload(store, root)

    assert (again.uploaded_count, again.reused_count) == (4, 0)
    assert read_release(store, "p", made.digest) == on_disk(root)


def test_repair_replaces_what_has_wrong_bytes_of_the_right_size(root: Path) -> None:
    store = MemoryObjectStore()
    made = upload(store, root)
    for info in list(store.list("blobs/")) + list(store.list("packs/")):
        store.write(info.key, b"?" * info.size_bytes)

    assert upload(store, root).digest == made.digest
    with pytest.raises(AssertionError):
        read_release(store, "p", made.digest)
    assert upload(store, root, repair=True).uploaded_count == 4
    assert read_release(store, "p", made.digest) == on_disk(root)


@pytest.mark.parametrize("rubbish", [b"{}", b"\xff" * 100])
def test_unreadable_layouts_and_packs_are_left_alone(root: Path, rubbish: bytes) -> None:
    store = MemoryObjectStore()
    made = upload(store, root)
    (pack,) = made.layout.packs
    (root / "extra.py").write_bytes(b"3")

    store.write(keys.pack(pack.name), rubbish[:1] * pack.size_bytes)
    assert upload(store, root).uploaded_count == 4
    store.write(keys.layout("p", made.digest), rubbish)
    (root / "more.py").write_bytes(b"4")
    again = upload(store, root)
    assert read_release(store, "p", again.digest) == on_disk(root)


def test_dry_run_says_what_would_be_sent_and_writes_nothing(root: Path) -> None:
    store = MemoryObjectStore()

    told = upload(store, root, dry_run=True)

    assert store.writes == []
    made = upload(store, root)
    assert told == replace(made, layout=told.layout, dry_run=True)
    assert told.layout.packs == made.layout.packs


class Meddling(MemoryObjectStore):
    """Changes a file at the publisher's first request, which comes after it has hashed the file."""

    def __init__(self, change: Callable[[], object]) -> None:
        super().__init__()
        self._change = change

    def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
        self._change()
        return super().list(prefix, start_after)


@pytest.mark.parametrize("size", [10, LARGE, CHUNKED])
@pytest.mark.parametrize("change", ["other", "shorter", "longer", "gone"])
def test_file_that_changes_meanwhile_is_never_stored_under_its_old_digest(
    root: Path, size: int, change: str
) -> None:
    file = root / "main.py"
    file.write_bytes(b"a" * size)
    new = {"other": b"b" * size, "shorter": b"a" * (size - 1), "longer": b"a" * (size + 1), "gone": None}[
        change
    ]
    (root / "big").unlink()
    store = Meddling(lambda: file.unlink(missing_ok=True) if new is None else file.write_bytes(new))

    with pytest.raises(SourceChangedError, match=r"main\.py"):
        upload(store, root)

    assert visible(store) == []
    assert [info.key for info in store.list("blobs/")] == []


def test_pipe_in_the_place_of_a_file_is_refused_and_holds_nobody_up(root: Path) -> None:
    files = collect(root, include=["**"])
    (root / "main.py").unlink()
    os.mkfifo(root / "main.py")

    with pytest.raises(UnsafeSourceError, match="no regular file"):
        publish(MemoryObjectStore(), name="p", files=files, retry=QUICK)


class Refusing(MemoryObjectStore):
    """Accepts only the first few writes."""

    def __init__(self, allowed: int) -> None:
        super().__init__()
        self.allowed = allowed

    def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
        self.allowed -= 1
        if self.allowed < 0:
            raise BucketAccessDeniedError("no more")
        super().write(key, data, on_progress=on_progress)


@pytest.mark.parametrize("allowed", range(6))  # of lease, pack, blob, layout, history, manifest
def test_publish_that_ends_early_leaves_no_release_and_the_next_completes_it(
    root: Path, allowed: int
) -> None:
    expected = upload(MemoryObjectStore(), root)
    store = Refusing(allowed)

    with pytest.raises(BucketAccessDeniedError):
        upload(store, root)
    assert visible(store) == []

    store.allowed = 100
    made = upload(store, root)
    sent_before = {0: 0, 1: 0, 2: None}.get(allowed, 4)  # either the pack or the blob is written first
    assert sent_before is None or made.reused_count == sent_before
    assert (made.digest, made.layout.packs) == (expected.digest, expected.layout.packs)
    assert visible(store) == [keys.manifest("p", made.digest)]
    assert read_release(store, "p", made.digest) == on_disk(root)


class Flaky(MemoryObjectStore):
    """The first write of each key fails."""

    def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
        if not self.reads[f"tried {key}"]:
            self.reads[f"tried {key}"] += 1
            raise BucketUnavailableError("hiccup")
        super().write(key, data, on_progress=on_progress)


def test_publish_survives_hiccups(root: Path) -> None:
    store = Flaky()

    made = upload(store, root)

    assert read_release(store, "p", made.digest) == on_disk(root)


class Crumbling(MemoryObjectStore):
    """The first three uploads of a large object fail, each one MiB later than the one before."""

    def __init__(self) -> None:
        super().__init__()
        self.tries = 0

    def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
        if key.startswith(keys.BLOBS):
            self.tries += 1
            for _ in range(min(self.tries, 4)):
                on_progress(1 << 20)
            if self.tries < 4:
                raise BucketUnavailableError("broke off")
        super().write(key, data, on_progress=ignore_progress)


def test_large_upload_is_not_given_up_while_it_gets_further(root: Path) -> None:
    store = Crumbling()
    impatient = replace(QUICK, deadline=timedelta(microseconds=1))  # a call is repeated only after progress

    made = upload(store, root, retry=impatient)

    assert store.tries == 4
    assert read_release(store, "p", made.digest) == on_disk(root)


def test_publish_gives_up_on_an_outage_within_its_deadline(root: Path) -> None:
    store = MemoryObjectStore()
    store.unavailable = True

    with pytest.raises(BucketUnavailableError):
        upload(store, root, retry=replace(QUICK, deadline=timedelta(milliseconds=200)))


def test_first_error_ends_the_others(root: Path) -> None:
    class Stuck(MemoryObjectStore):
        """Uploads of packs never end by themselves. The upload of a blob fails."""

        def write(self, key: str, data: bytes | Path, *, on_progress: OnProgress = ignore_progress) -> None:
            if key.startswith(keys.BLOBS):
                uploading.wait(60)
                raise BucketAccessDeniedError("not you")
            if key.startswith(keys.PACKS):
                uploading.set()
                while True:
                    on_progress(0)
            super().write(key, data, on_progress=on_progress)

    uploading = threading.Event()
    with pytest.raises(BucketAccessDeniedError, match="not you"):
        upload(Stuck(), root)


def test_progress_of_each_phase_ends_at_its_total(root: Path) -> None:
    seen: list[Progress] = []

    upload(MemoryObjectStore(), root, progress=seen.append)

    last = {item.phase: item for item in seen}
    files = LARGE + 3
    assert last == {
        WorkPhase.HASHING: Progress(WorkPhase.HASHING, 5, 5, files, files),
        WorkPhase.PACKING: Progress(WorkPhase.PACKING, 3, 3, 2, 2),
        WorkPhase.UPLOADING: Progress(WorkPhase.UPLOADING, 4, 4, LARGE + 2, LARGE + 2),
    }


def test_error_of_the_progress_callback_ends_the_publish(root: Path) -> None:
    store = MemoryObjectStore()

    def cancel(_now: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        upload(store, root, progress=cancel)
    assert list(store.list("")) == []


@pytest.mark.parametrize("who", ["a\nb", "x" * 201])
def test_publisher_that_cannot_be_printed_is_refused_before_anything_is_done(root: Path, who: str) -> None:
    with pytest.raises(InvalidLayoutError):
        upload(MemoryObjectStore(), root, published_by=who)


def test_files_that_cannot_be_one_release_are_refused_before_a_byte_is_sent(root: Path) -> None:
    store = MemoryObjectStore()
    files = [SourceFile(path, root / "main.py", Role.CODE, executable=False) for path in ("a", "A")]

    with pytest.raises(InvalidManifestError):
        publish(store, name="p", files=files, retry=QUICK)
    assert store.writes == []


def test_scratch_that_is_not_there_is_named(root: Path, tmp_path: Path) -> None:
    with pytest.raises(LocalStoreError, match="nowhere"):
        upload(MemoryObjectStore(), root, scratch=tmp_path / "nowhere")


def test_large_manifest_is_stored_compressed_and_read_back(tmp_path: Path) -> None:
    (tmp_path / "f").write_text("x")
    files = [
        SourceFile(f"dir/file-{number}.py", tmp_path / "f", Role.CODE, executable=False)
        for number in range(2_000)
    ]
    store = MemoryObjectStore()

    made = publish(store, name="p", files=files, retry=QUICK)

    key = keys.manifest("p", made.digest)
    assert len(made.manifest.canonical) > COMPRESSED_BYTES
    assert store.size(key) == len(stored_manifest(made.manifest)) < len(made.manifest.canonical) / 4
    assert fetch_manifest(store, "p", made.digest) == made.manifest
    for at in (0, 5, 50, -1):
        store.corrupt(key, at % len(stored_manifest(made.manifest)))
        with pytest.raises(CorruptBlobError):
            fetch_manifest(store, "p", made.digest)
        store.heal(key)
    store.write(key, stored_manifest(made.manifest)[:-10])
    with pytest.raises(CorruptBlobError):
        fetch_manifest(store, "p", made.digest)
    store.write(key, made.manifest.canonical)
    assert fetch_manifest(store, "p", made.digest) == made.manifest


def test_manifest_with_other_bytes_than_its_digest_is_refused(root: Path) -> None:
    store = MemoryObjectStore()
    made = upload(store, root)
    store.corrupt(f"releases/p/{made.digest}.json")

    with pytest.raises(CorruptBlobError):
        fetch_manifest(store, "p", made.digest)
    with pytest.raises(BlobNotFoundError):
        fetch_manifest(store, "p", "0" * 64)


def test_layout_above_its_limit_is_not_read(root: Path) -> None:
    store = MemoryObjectStore()
    made = upload(store, root)
    store.write(keys.layout("p", made.digest), b" " * (5 << 20))

    with pytest.raises(InvalidLayoutError):
        fetch_layout(store, "p", made.digest)
    with pytest.raises(BlobNotFoundError):
        fetch_layout(store, "p", "0" * 64)


def test_listing_releases_ignores_what_is_no_manifest() -> None:
    class Odd(MemoryObjectStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            now = datetime.now(UTC)
            yield ObjectInfo(f"{prefix}readme.txt", 1, now)
            yield ObjectInfo(f"{prefix}{'a' * 64}.json", 1, now)

    assert list_releases(Odd(), "p") == ["a" * 64]
