"""Files of outputs, as a scheduler lists and reads them. Their names and content are not trusted."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from blobsync.testing.memory import MemoryObjectStore
from nimbus.api.services import OpenedFile, OutputFiles
from nimbus.domain.data.outputs import ListedFile, OutputsNotHereError, file_order, listing
from nimbus.scheduler import output_files
from nimbus.scheduler.output_files import BucketFiles, FolderFiles
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.data.folder_checks import MARK
from nimbus.worker.data.places import write_manifest

OUTPUT = "sums/run1/load/1"
FILES = {"a/b": b"in a", "a.txt": b"beside", "b": b"", "a/c/d": b"deep", "large": os.urandom(3 << 20)}


def in_bucket(tmp_path: Path) -> tuple[BucketFiles, str]:
    """Outputs in a bucket, and the reference of one with `FILES`."""
    store = MemoryObjectStore()
    place = BucketPlace("s3://b/p", tmp_path / "inputs", lambda: store)
    reference = place.commit(written(tmp_path / "own"), place.prefix(OUTPUT))
    return BucketFiles("s3://b/p", store), reference


def in_folder(tmp_path: Path) -> tuple[FolderFiles, str]:
    """Outputs in a folder, and the reference of one with `FILES`."""
    written(tmp_path / "data" / OUTPUT)
    (tmp_path / "data" / MARK).write_text("mark")
    return FolderFiles(tmp_path / "data", lambda _given: "mark"), OUTPUT


def published(tmp_path: Path) -> tuple[FolderFiles, str]:
    """A published output in a folder."""
    files, reference = in_folder(tmp_path)
    return files, write_manifest(tmp_path / "data" / reference, reference)


def written(top: Path) -> Path:
    for name, data in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_bytes(data)
    return top


@pytest.fixture(params=[in_bucket, in_folder, published], ids=["bucket", "folder", "published"])
def output(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[OutputFiles, str]:
    make: Callable[[Path], tuple[OutputFiles, str]] = request.param
    return make(tmp_path)


def content(opened: OpenedFile | None) -> bytes:
    assert opened is not None
    return b"".join(opened.pieces)


def test_files_are_listed_with_sizes_page_by_page(output: tuple[OutputFiles, str]) -> None:
    place, reference = output
    whole = place.listed(reference, 100)
    paged, after = list[ListedFile](), ""
    while (page := place.listed(reference, 2, after)).truncated:
        paged += page.files
        after = paged[-1].path

    assert [file.path for file in whole.files] == ["a.txt", "b", "large", "a/b", "a/c/d"]
    assert {file.path: file.size_bytes for file in whole.files} == {
        name: len(data) for name, data in FILES.items()
    }
    assert (whole.total_files, whole.total_bytes) == (5, sum(map(len, FILES.values())))
    assert [*paged, *page.files] == whole.files


def test_files_are_read_as_they_were_committed(output: tuple[OutputFiles, str]) -> None:
    place, reference = output

    assert {name: content(place.opened(reference, name)) for name in FILES} == FILES


@pytest.mark.parametrize("path", ["c", "a", "a/../b", "../1/b", "/etc/passwd", "a//b", "b/x", ".", "b\0"])
def test_no_other_path_is_read(output: tuple[OutputFiles, str], path: str) -> None:
    place, reference = output

    assert place.opened(reference, path) is None


def test_place_of_files_is_shown(tmp_path: Path) -> None:
    bucket, reference = in_bucket(tmp_path)
    folder, _ = in_folder(tmp_path)

    assert bucket.uri(reference) == f"s3://b/p/{reference.rpartition('/')[0]}"
    assert folder.uri(OUTPUT) == f"file://{tmp_path}/data/{OUTPUT}"


def test_object_that_was_replaced_ends_its_answer_early(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = MemoryObjectStore()
    place = BucketPlace("s3://b/p", tmp_path / "inputs", lambda: store)
    prefix = place.prefix(OUTPUT)
    reference = place.commit(written(tmp_path / "own"), prefix)
    store.write(f"{prefix}/large", os.urandom(3 << 20))
    store.lose(f"{prefix}/a/b")
    files = BucketFiles("s3://b/p", store)

    got = bytearray()
    with pytest.raises(OutputsNotHereError, match="'large' is not what was committed"):
        for piece in (files.opened(reference, "large") or pytest.fail()).pieces:
            got += piece
    with pytest.raises(OutputsNotHereError, match=r"a/b.*does not exist"):
        files.opened(reference, "a/b")

    assert len(got) < 3 << 20
    monkeypatch.setattr(output_files, "MAX_MANIFEST_BYTES", 10)
    with pytest.raises(OutputsNotHereError, match="larger than 10 bytes"):
        BucketFiles("s3://b/p", store).listed(reference, 1)


def test_published_file_that_was_replaced_is_not_sent(tmp_path: Path) -> None:
    files, reference = published(tmp_path)
    top = tmp_path / "data" / OUTPUT
    (top / "a.txt").write_bytes(b"BESIDE")
    (top / "more").touch()

    with pytest.raises(OutputsNotHereError, match=r"'a.txt' is not what was committed"):
        files.opened(reference, "a.txt")
    assert files.opened(reference, "more") is None
    assert all(file.sha256 for file in files.listed(reference, 100).files)
    assert files.uri(reference) == f"file://{top}"
    (tmp_path / "data" / reference).write_text("{}")
    with pytest.raises(OutputsNotHereError, match="is not what was committed"):
        FolderFiles(tmp_path / "data", lambda _given: "mark").listed(reference, 1)


def test_nothing_but_regular_files_is_listed_or_read(tmp_path: Path) -> None:
    files, _ = in_folder(tmp_path)
    top, secret = tmp_path / "data" / OUTPUT, tmp_path / "secret"
    secret.mkdir()
    (secret / "key").write_text("secret")
    (top / "link").symlink_to(secret / "key")
    (top / "a" / "folder").symlink_to(secret)
    os.mkfifo(top / "pipe")
    (top / "bad\nname").touch()
    Path(os.fsdecode(os.fsencode(top) + b"/\xff")).touch()

    shown = files.listed(OUTPUT, 100)

    assert {file.path for file in shown.files} == set(FILES)
    assert shown.total_files == len(FILES)
    for path in ("link", "a/folder/key", "a/folder", "pipe", "bad\nname", "\udcff"):
        assert files.opened(OUTPUT, path) is None


def test_output_that_a_task_has_replaced_by_a_link_is_not_followed(tmp_path: Path) -> None:
    files, _ = in_folder(tmp_path)
    top = tmp_path / "data" / OUTPUT
    top.rename(tmp_path / "elsewhere")
    top.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(OutputsNotHereError, match="Not a directory"):
        files.listed(OUTPUT, 10)
    with pytest.raises(OutputsNotHereError, match="Not a directory"):
        files.opened(OUTPUT, "b")


def test_file_that_shrinks_while_it_is_read_ends_its_answer_early(tmp_path: Path) -> None:
    files, _ = in_folder(tmp_path)
    opened = files.opened(OUTPUT, "large")
    (tmp_path / "data" / OUTPUT / "large").write_bytes(b"")

    with pytest.raises(OutputsNotHereError, match="'large' is not what was committed"):
        content(opened)


@pytest.mark.parametrize("reference", ["../data/x", "/etc", "sums/../../x"])
def test_reference_outside_of_the_folder_is_refused(tmp_path: Path, reference: str) -> None:
    files, _ = in_folder(tmp_path)

    with pytest.raises(OutputsNotHereError, match="is no place of an output"):
        files.listed(reference, 10)


@pytest.mark.parametrize(
    ("mark", "recorded", "why"),
    [("mark", "", "or one that no worker uses"), ("other", "mark", "another .nimbus-data than")],
)
def test_folder_that_is_not_the_clusters_is_refused(
    tmp_path: Path, mark: str, recorded: str, why: str
) -> None:
    in_folder(tmp_path)
    (tmp_path / "data" / MARK).write_text(mark)

    with pytest.raises(OutputsNotHereError, match=why):
        FolderFiles(tmp_path / "data", lambda _given: recorded).listed(OUTPUT, 10)


def test_output_in_the_other_kind_of_place_is_refused(tmp_path: Path) -> None:
    bucket, reference = in_bucket(tmp_path)
    folder, _ = in_folder(tmp_path)

    with pytest.raises(OutputsNotHereError, match="not a folder"):
        bucket.listed(OUTPUT, 10)
    with pytest.raises(OutputsNotHereError, match="is in a bucket"):
        folder.listed(reference, 10)


def test_order_is_that_of_a_walk() -> None:
    paths = ["a/b", "a", "b/a", "a/b/c", "B"]

    assert sorted(paths, key=file_order) == ["B", "a", "a/b", "a/b/c", "b/a"]
    assert listing((), 0).total_files == 0
