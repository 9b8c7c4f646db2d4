"""Choosing and publishing files: nothing unsafe is taken, nothing half-done is seen."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from blobsync import (
    BlobNotFoundError,
    BlobSyncConfigError,
    CorruptBlobError,
    ObjectInfo,
    PublishProgress,
    RetryPolicy,
    Role,
    SourceChangedError,
    SourceFile,
    StoreAccessDeniedError,
    StoreUnavailableError,
    UnmatchedPatternError,
    UnsafeSourceError,
    collect,
    fetch_manifest,
    list_releases,
    publish,
)
from blobsync.publish import publisher
from blobsync.testing.memory import MemoryObjectStore

QUICK = RetryPolicy(
    first_wait=timedelta(milliseconds=1), max_wait=timedelta(milliseconds=5), deadline=timedelta(seconds=60)
)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    tree = {
        "main.py": "1",
        "lib/util.py": "2",
        "lib/deep/more.py": "3",
        "conf/a.yaml": "4",
        "wheels/x.whl": "5",
        "lib/__pycache__/util.pyc": "6",
        ".git/config": "7",
        ".hidden/x.py": "8",
        "lib/.swp": "9",
    }
    for name, text in tree.items():
        path = tmp_path / "src" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path / "src"


def names(files: Sequence[SourceFile]) -> list[str]:
    return [item.path for item in files]


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("**", ["conf/a.yaml", "lib/deep/more.py", "lib/util.py", "main.py", "wheels/x.whl"]),
        ("**/*.py", ["lib/deep/more.py", "lib/util.py", "main.py"]),
        ("*.py", ["main.py"]),
        ("lib/*.py", ["lib/util.py"]),
        ("lib/**", ["lib/deep/more.py", "lib/util.py"]),
        ("lib/**/more.py", ["lib/deep/more.py"]),
        ("**/util.py", ["lib/util.py"]),
        ("mai?.py", ["main.py"]),
        ("[lm]ain.py", ["main.py"]),
        ("./main.py", ["main.py"]),
        (".hidden/*", [".hidden/x.py"]),
    ],
)
def test_patterns_mean_what_a_shell_means(root: Path, pattern: str, expected: list[str]) -> None:
    assert names(collect(root, include=[pattern])) == expected


def test_most_special_role_wins(root: Path) -> None:
    files = collect(root, include=["**"], configuration=["conf/*"], dependencies=["wheels/*.whl"])

    assert {item.path: item.role for item in files} == {
        "main.py": Role.CODE,
        "lib/util.py": Role.CODE,
        "lib/deep/more.py": Role.CODE,
        "conf/a.yaml": Role.CONFIGURATION,
        "wheels/x.whl": Role.DEPENDENCY,
    }


def test_executable_files_stay_so(root: Path) -> None:
    (root / "main.py").chmod(0o755)

    assert [item.path for item in collect(root, include=["**"]) if item.executable] == ["main.py"]


@pytest.mark.parametrize("pattern", ["*.jar", "lib/__pycache__/*", ".git/config", "lib"])
def test_pattern_that_matches_nothing_is_named(root: Path, pattern: str) -> None:
    with pytest.raises(UnmatchedPatternError) as refused:
        collect(root, include=["**", pattern])
    assert refused.value.pattern == pattern
    assert ("write lib/**" in str(refused.value)) == (pattern == "lib")


@pytest.mark.parametrize("pattern", ["/etc/passwd", "../x", "a/../../x", "", "a//b"])
def test_pattern_that_leaves_the_root_is_refused(root: Path, pattern: str) -> None:
    with pytest.raises(BlobSyncConfigError):
        collect(root, include=[pattern])


def test_link_out_of_the_tree_is_refused_and_one_within_is_taken(root: Path, tmp_path: Path) -> None:
    (root / "inside.py").symlink_to("main.py")
    assert "inside.py" in names(collect(root, include=["*.py"]))

    (tmp_path / "secret.py").write_text("x")
    (root / "outside.py").symlink_to(tmp_path / "secret.py")
    with pytest.raises(UnsafeSourceError, match=r"outside\.py is a link to"):
        collect(root, include=["*.py"])


@pytest.mark.parametrize("target", ["/etc", "lib", "nowhere"])
def test_link_to_a_folder_or_to_nothing_is_refused(root: Path, target: str) -> None:
    (root / "linked").symlink_to(target)

    with pytest.raises(UnsafeSourceError, match="linked"):
        collect(root, include=["**"])


def test_pipe_is_refused(root: Path) -> None:
    os.mkfifo(root / "pipe")

    with pytest.raises(UnsafeSourceError, match="no regular file"):
        collect(root, include=["**"])


@pytest.mark.parametrize(
    ("one", "other"), [("a.py", "A.py"), ("x/b.py", "X/c.py"), ("\u00e9.py", "e\u0301.py")]
)
def test_names_that_collide_elsewhere_are_refused(root: Path, one: str, other: str) -> None:
    for name in (one, other):
        (root / name).parent.mkdir(exist_ok=True)
        (root / name).write_text("x")

    with pytest.raises(UnsafeSourceError):
        collect(root, include=["**"])


@pytest.mark.parametrize(
    "name", ["id_rsa", "conf/server.pem", "deep/er/key.p12", ".env", ".env.prod", ".aws/config"]
)
def test_secret_by_name_is_refused_unless_allowed(root: Path, name: str) -> None:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    (root / name).write_text("x")

    with pytest.raises(UnsafeSourceError, match="secret"):
        collect(root, include=["**", name])
    assert name in names(collect(root, include=["**", name], allow_secrets=[name]))


def test_link_to_a_secret_is_refused_under_any_name(root: Path) -> None:
    (root / "conf/server.pem").write_text("x")
    (root / "innocent.py").symlink_to("conf/server.pem")

    with pytest.raises(UnsafeSourceError, match="secret"):
        collect(root, include=["*.py"])


def test_manifest_is_written_after_all_of_its_blobs(root: Path) -> None:
    store = MemoryObjectStore()

    made = publish(store, name="p", files=collect(root, include=["**"]), retry=QUICK)

    *blobs, last = store.writes
    assert last == f"releases/p/{made.digest}.json"
    assert sorted(blobs) == sorted(f"blobs/{item.sha256}" for item in made.manifest.artifacts)
    assert fetch_manifest(store, "p", made.digest) == made.manifest


@pytest.mark.parametrize("size", [10, publisher.IN_MEMORY_BYTES + 1])
def test_blobs_are_the_files(root: Path, size: int) -> None:
    (root / "big.bin").write_bytes(os.urandom(size))
    store = MemoryObjectStore()

    made = publish(store, name="p", files=collect(root, include=["**"]), retry=QUICK)

    for item in made.manifest.artifacts:
        assert b"".join(store.read(f"blobs/{item.sha256}")) == (root / item.path).read_bytes()


def test_publishing_again_uploads_only_what_is_new(root: Path) -> None:
    store = MemoryObjectStore()
    first = publish(store, name="p", files=collect(root, include=["**"]), retry=QUICK)
    (root / "main.py").write_text("changed")

    again = publish(store, name="p", files=collect(root, include=["**"]), retry=QUICK)

    assert (first.uploaded_count, first.reused_count) == (5, 0)
    assert (again.uploaded_count, again.reused_count) == (1, 4)
    assert (again.uploaded_bytes, again.reused_bytes) == (7, 4)
    assert list_releases(store, "p") == sorted([first.digest, again.digest])


def test_blob_of_a_wrong_size_in_the_store_is_uploaded_again(root: Path) -> None:
    store = MemoryObjectStore()
    made = publish(store, name="p", files=collect(root, include=["main.py"]), retry=QUICK)
    key = f"blobs/{made.manifest.artifacts[0].sha256}"
    store.write(key, b"cut short, or rather long")

    assert publish(store, name="p", files=collect(root, include=["main.py"]), retry=QUICK).uploaded_count == 1
    assert b"".join(store.read(key)) == b"1"


def test_equal_files_are_uploaded_once(root: Path) -> None:
    (root / "copy.py").write_text("1")

    made = publish(MemoryObjectStore(), name="p", files=collect(root, include=["*.py"]), retry=QUICK)

    assert (made.uploaded_count, made.uploaded_bytes, len(made.manifest.artifacts)) == (1, 1, 2)


class Meddling(MemoryObjectStore):
    """Changes a file at the moment when the publisher, having hashed it, asks whether its blob is there."""

    def __init__(self, file: Path, data: bytes) -> None:
        super().__init__()
        self._file, self._data = file, data

    def size(self, key: str) -> int | None:
        self._file.write_bytes(self._data)
        return super().size(key)


@pytest.mark.parametrize("size", [10, publisher.IN_MEMORY_BYTES + 1])
def test_file_that_changes_meanwhile_is_never_stored_under_its_old_digest(root: Path, size: int) -> None:
    (root / "main.py").write_bytes(b"a" * size)
    store = Meddling(root / "main.py", b"b" * size)

    with pytest.raises(SourceChangedError, match=r"main\.py"):
        publish(store, name="p", files=collect(root, include=["main.py"]), retry=QUICK)

    assert store.writes == []
    assert list_releases(store, "p") == []


class Refusing(MemoryObjectStore):
    """Lets some writes through, and no more."""

    def __init__(self, allowed: int) -> None:
        super().__init__()
        self.allowed = allowed

    def write(self, key: str, data: bytes | Path) -> None:
        self.allowed -= 1
        if self.allowed < 0:
            raise StoreAccessDeniedError("no more")
        super().write(key, data)


@pytest.mark.parametrize("allowed", range(6))
def test_publish_that_ends_early_leaves_no_release(root: Path, allowed: int) -> None:
    store = Refusing(allowed)

    with pytest.raises(StoreAccessDeniedError):
        publish(store, name="p", files=collect(root, include=["**"]), retry=QUICK)
    assert list_releases(store, "p") == []

    store.allowed = 100
    made = publish(store, name="p", files=collect(root, include=["**"]), retry=QUICK)
    assert made.reused_count == allowed
    assert list_releases(store, "p") == [made.digest]


class Flaky(MemoryObjectStore):
    """Each first write of a key fails."""

    def write(self, key: str, data: bytes | Path) -> None:
        if not self.reads[f"tried {key}"]:
            self.reads[f"tried {key}"] += 1
            raise StoreUnavailableError("hiccup")
        super().write(key, data)


def test_publish_survives_hiccups(root: Path) -> None:
    store = Flaky()

    made = publish(store, name="p", files=collect(root, include=["**"]), retry=QUICK)

    assert fetch_manifest(store, "p", made.digest) == made.manifest


def test_publish_gives_up_on_an_outage_within_its_deadline(root: Path) -> None:
    store = MemoryObjectStore()
    store.unavailable = True
    impatient = replace(QUICK, deadline=timedelta(seconds=1))

    with pytest.raises(StoreUnavailableError):
        publish(store, name="p", files=collect(root, include=["**"]), retry=impatient)


def test_progress_ends_at_the_total(root: Path) -> None:
    seen: list[PublishProgress] = []

    publish(
        MemoryObjectStore(), name="p", files=collect(root, include=["**"]), retry=QUICK, progress=seen.append
    )

    assert seen[-1] == PublishProgress(5, 5, 5, 5, 5)
    assert [item.done_bytes for item in seen] == sorted(item.done_bytes for item in seen)


def test_manifest_with_other_bytes_than_its_digest_is_refused(root: Path) -> None:
    store = MemoryObjectStore()
    made = publish(store, name="p", files=collect(root, include=["**"]), retry=QUICK)
    store.corrupt(f"releases/p/{made.digest}.json")

    with pytest.raises(CorruptBlobError):
        fetch_manifest(store, "p", made.digest)
    with pytest.raises(BlobNotFoundError):
        fetch_manifest(store, "p", "0" * 64)


def test_listing_releases_ignores_what_is_no_manifest() -> None:
    class Odd(MemoryObjectStore):
        def list(self, prefix: str, start_after: str | None = None) -> Iterator[ObjectInfo]:
            now = datetime.now(UTC)
            yield ObjectInfo(f"{prefix}readme.txt", 1, now)
            yield ObjectInfo(f"{prefix}{'a' * 64}.json", 1, now)

    assert list_releases(Odd(), "p") == ["a" * 64]
