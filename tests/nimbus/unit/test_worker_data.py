"""Outputs in a bucket: checks, refusals, and parts that are not read."""

from __future__ import annotations

import hashlib
import json
import os
import time
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import BucketUnavailableError, RetryPolicy
from blobsync.testing.memory import MemoryObjectStore
from nimbus.domain.runs.task_run import Outcome
from nimbus.worker.attempt.folder import AttemptFolder
from nimbus.worker.attempt.held_attempt import committed
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.data.manifest import OutputFile, OutputManifest, manifest_key, parts_of, write_note
from nimbus.worker.data.ports import InputRefusedError, OutputRefusedError

OUTPUT = "sums/run1/load/1"
IMPATIENT = RetryPolicy(first_wait=timedelta(milliseconds=1), deadline=timedelta(milliseconds=50))


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture
def place(tmp_path: Path, store: MemoryObjectStore) -> BucketPlace:
    return BucketPlace("s3://b/p", tmp_path / "inputs", lambda: store, IMPATIENT)


@pytest.fixture
def output(tmp_path: Path, place: BucketPlace) -> Path:
    folder = place.output(OUTPUT, tmp_path / "attempt")
    (folder / "data").mkdir(parents=True)
    (folder / "data" / "part-0").write_text("rows")
    return folder


@pytest.fixture
def folder(tmp_path: Path, place: BucketPlace) -> AttemptFolder:
    made = AttemptFolder(tmp_path / "run1.load.1")
    made.work.mkdir(parents=True)
    made.context_file.write_text(json.dumps({"data": {"output": place.prefix(OUTPUT)}}))
    return made


def a_part(store: MemoryObjectStore, prefix: str, path: str, data: bytes = b"part") -> OutputFile:
    """Write a part like Spark's writer."""
    store.write(f"{prefix}/{path}", data)
    return OutputFile(path=path, size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())


def keys(store: MemoryObjectStore) -> list[str]:
    return [found.key for found in store.list("")]


def test_manifest_is_written_after_all_files_and_named_by_its_digest(
    place: BucketPlace, output: Path, store: MemoryObjectStore
) -> None:
    prefix = place.prefix(OUTPUT)

    reference = place.commit(output, prefix)

    data = b"".join(store.read(reference))
    assert reference == manifest_key(prefix, data)
    assert [file.path for file in OutputManifest.decode(data, reference).files] == ["data/part-0"]
    assert sorted(keys(store)) == [f"{prefix}/data/part-0", reference]


def test_prefix_is_never_used_twice(place: BucketPlace) -> None:
    assert place.prefix(OUTPUT) != place.prefix(OUTPUT)


def test_parts_that_a_zombie_adds_later_are_not_read(
    place: BucketPlace, output: Path, store: MemoryObjectStore
) -> None:
    prefix = place.prefix(OUTPUT)
    reference = place.commit(output, prefix)
    store.write(f"{prefix}/data/part-1", b"of a zombie")

    place.fetch(reference)

    assert [path.name for path in (place.input(reference) / "data").iterdir()] == ["part-0"]


@pytest.mark.parametrize("which", ["data/part-0", "manifest"])
def test_object_that_is_not_what_was_committed_is_refused(
    place: BucketPlace, output: Path, store: MemoryObjectStore, which: str
) -> None:
    prefix = place.prefix(OUTPUT)
    reference = place.commit(output, prefix)
    store.write(reference if which == "manifest" else f"{prefix}/{which}", b"{}")

    with pytest.raises(InputRefusedError, match="is not what was committed"):
        place.fetch(reference)

    assert not place.is_here(reference)
    assert list(place.input(reference).parent.glob(".*")) == []


def test_object_that_is_gone_is_refused_and_leaves_nothing(
    place: BucketPlace, output: Path, store: MemoryObjectStore
) -> None:
    prefix = place.prefix(OUTPUT)
    reference = place.commit(output, prefix)
    store.lose(f"{prefix}/data/part-0")

    with pytest.raises(InputRefusedError, match="does not exist"):
        place.fetch(reference)

    assert not place.is_here(reference)


@pytest.mark.parametrize("path", ["../x", "/x", "a/../../x", "", "a\0b"])
def test_manifest_that_names_a_place_outside_of_the_output_is_refused(path: str) -> None:
    file = {"path": path, "size_bytes": 1, "sha256": "0" * 64}
    data = json.dumps({"schema": 1, "prefix": "p", "files": [file], "folders": []}).encode()

    with pytest.raises(InputRefusedError, match="lies outside of the output"):
        OutputManifest.decode(data, manifest_key("p", data))


def test_manifest_of_another_attempt_is_refused() -> None:
    data = OutputManifest(prefix="sums/run1/load/1-00", files=()).encode()

    with pytest.raises(InputRefusedError, match="it is that of sums/run1/load/1-00"):
        OutputManifest.decode(data, manifest_key("sums/run1/load/2-00", data))


@pytest.mark.parametrize("document", [b"[]", b"{}", b"x", b'{"schema": 2, "files": [], "folders": []}'])
def test_manifest_that_is_none_is_refused(document: bytes) -> None:
    with pytest.raises(InputRefusedError, match="cannot be followed"):
        OutputManifest.decode(document, manifest_key("p", document))


@pytest.mark.parametrize("kind", ["file-link", "folder-link", "pipe"])
def test_what_a_bucket_cannot_keep_is_refused_and_not_followed(
    place: BucketPlace, output: Path, store: MemoryObjectStore, tmp_path: Path, kind: str
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret").write_text("of somebody else")
    if kind == "pipe":
        os.mkfifo(output / "odd")
    else:
        (output / "odd").symlink_to(outside if kind == "folder-link" else outside / "secret")

    with pytest.raises(OutputRefusedError, match="'odd' is a link or no regular file"):
        place.commit(output, place.prefix(OUTPUT))

    assert not any("secret" in key or "odd" in key or "manifest" in key for key in keys(store))


def test_output_whose_folder_became_a_link_is_not_committed(
    place: BucketPlace, output: Path, store: MemoryObjectStore
) -> None:
    output.rename(output.with_name("moved"))
    output.symlink_to(output.with_name("moved"))

    with pytest.raises(NotADirectoryError):
        place.commit(output, place.prefix(OUTPUT))

    assert keys(store) == []


def test_success_whose_output_cannot_be_stored_is_a_failure_that_says_why(
    place: BucketPlace, folder: AttemptFolder, output: Path, store: MemoryObjectStore
) -> None:
    store.unavailable = True

    verdict, reference = committed(place, folder, output, lambda: None)

    assert (verdict.outcome, reference) == (Outcome.FAILED, None)
    assert verdict.reason.startswith("its output could not be stored: ")


def test_upload_is_tried_again_when_the_store_does_not_answer_for_a_moment(
    tmp_path: Path, output: Path, store: MemoryObjectStore
) -> None:
    class Flaky(MemoryObjectStore):
        failures = 3

        def write(self, key: str, data: bytes | Path, **more: object) -> None:
            if self.failures:
                self.failures -= 1
                raise BucketUnavailableError("not now")
            super().write(key, data)

    flaky = Flaky()
    policy = RetryPolicy(first_wait=timedelta(milliseconds=1))
    place = BucketPlace("s3://b/p", tmp_path / "inputs", lambda: flaky, policy)

    reference = place.commit(output, place.prefix(OUTPUT))

    place.fetch(reference)
    assert (place.input(reference) / "data" / "part-0").read_text() == "rows"


def test_parts_that_were_noted_are_a_part_of_the_output_and_others_are_not(
    place: BucketPlace, folder: AttemptFolder, output: Path, store: MemoryObjectStore
) -> None:
    prefix = folder.output_prefix()
    for number in range(2):
        write_note(folder.noted, [a_part(store, prefix, f"table/part-{number}")])
    a_part(store, prefix, "table/part-of-a-spark-task-that-failed")

    verdict, reference = committed(place, folder, output, lambda: None)

    assert reference is not None, verdict.reason
    place.fetch(reference)
    top = place.input(reference)
    files = {str(path.relative_to(top)) for path in top.rglob("*") if path.is_file()}
    assert files == {"data/part-0", "table/part-0", "table/part-1"}


@pytest.mark.parametrize(
    "note",
    [
        "[",
        "{}",
        '[{"path": "../../x", "size_bytes": 4, "sha256": "%s"}]' % ("0" * 64),
        '[{"path": "not-there", "size_bytes": 4, "sha256": "%s"}]' % ("0" * 64),
        '[{"path": "data/part-0", "size_bytes": 4, "sha256": "%s"}]' % ("0" * 64),
        '[{"path": "x", "size_bytes": 4, "sha256": "short"}]',
        "[" * 100_000,
    ],
)
def test_note_that_cannot_be_followed_fails_the_attempt(
    place: BucketPlace, folder: AttemptFolder, output: Path, note: str
) -> None:
    folder.noted.mkdir()
    (folder.noted / "x.json").write_text(note)

    verdict, reference = committed(place, folder, output, lambda: None)

    assert (verdict.outcome, reference) == (Outcome.FAILED, None)
    assert "noted" in verdict.reason or "note of" in verdict.reason


def test_notes_behind_a_link_are_not_read(
    place: BucketPlace, folder: AttemptFolder, output: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "x.json").write_text("[")
    folder.noted.symlink_to(tmp_path / "elsewhere")

    assert committed(place, folder, output, lambda: None)[1] is not None


def test_copy_is_read_only(place: BucketPlace, output: Path) -> None:
    reference = place.commit(output, place.prefix(OUTPUT))

    place.fetch(reference)

    top = place.input(reference)
    modes = {path.stat().st_mode & 0o777 for path in (top, *top.rglob("*"))}
    assert modes == {0o700, 0o400}
    assert top.parent.stat().st_mode & 0o777 == 0o711  # users of tasks can enter it, but not list it


def test_copies_that_no_order_needs_are_removed_an_hour_after_their_last_use(
    place: BucketPlace, output: Path
) -> None:
    references = []
    for number in range(3):
        (output / "data" / "part-0").write_text(f"rows {number}")
        references.append(place.commit(output, place.prefix(OUTPUT)))
        place.fetch(references[-1])
    needed, old, fresh = references
    for reference in (needed, old):
        os.utime(place.input(reference), (time.time() - 3700,) * 2)

    place.remove_unused([needed, "sums/run1/load/1"])  # an order from before the bucket was configured

    assert [place.is_here(reference) for reference in (needed, old, fresh)] == [True, False, True]


def test_reference_gives_prefix_and_digest() -> None:
    reference = f"sums/run1/load/1-00ff/manifest-{'ab' * 32}.json"

    assert parts_of(reference) == ("sums/run1/load/1-00ff", "ab" * 32)


@pytest.mark.parametrize("name", [b"\xff\xfe", b"a\nb", b"x" * 250 + b"/" + b"y" * 250 + b"/" + b"z" * 250])
def test_name_that_is_no_key_fails_the_attempt_or_is_kept(
    place: BucketPlace, folder: AttemptFolder, output: Path, name: bytes
) -> None:
    path = Path(os.fsdecode(os.fsencode(output) + b"/" + name))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("odd")

    verdict, reference = committed(place, folder, output, lambda: None)

    assert reference is not None or "choose another" in verdict.reason
    if reference is not None:
        place.fetch(reference)
        kept = Path(os.fsdecode(os.fsencode(place.input(reference)) + b"/" + name))
        assert kept.read_text() == "odd"


@pytest.mark.parametrize("path", ["\udcff", "x" * 2000, "a//b", "./a", "a/./b"])
def test_note_of_a_name_that_is_no_key_fails_the_attempt(
    place: BucketPlace, folder: AttemptFolder, output: Path, path: str
) -> None:
    folder.noted.mkdir()
    note = [{"path": path, "size_bytes": 4, "sha256": "0" * 64}]
    (folder.noted / "x.json").write_text(json.dumps(note))

    verdict, reference = committed(place, folder, output, lambda: None)

    assert (verdict.outcome, reference) == (Outcome.FAILED, None)
