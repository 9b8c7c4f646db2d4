"""The manifest of a published output in a folder: what it refuses, and what it finds."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

from nimbus.worker.data import places
from nimbus.worker.data.manifest import OutputManifest, digest_beside, is_manifest, prefix_of
from nimbus.worker.data.places import MAX_FILES, FolderPlace, read_manifest, verify, write_manifest
from nimbus.worker.data.ports import InputRefusedError, OutputRefusedError
from nimbus.worker.data.tree import FoundFolder

OUTPUT = "sums/run1/load/1"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """An output in a folder."""
    top = tmp_path / "data" / OUTPUT
    (top / "data" / "day=1").mkdir(parents=True)
    (top / "empty").mkdir()
    (top / "data" / "day=1" / "part-0").write_bytes(b"rows")
    (top / "_SUCCESS").touch()
    return top


def test_manifest_lies_beside_the_folder_and_names_every_byte(output: Path) -> None:
    reference = write_manifest(output, OUTPUT)
    (beside,) = (path for path in output.parent.iterdir() if path != output)
    manifest = OutputManifest.decode(beside.read_bytes(), reference)

    assert reference == f"{OUTPUT}.manifest-{digest_beside(reference)}.json"
    assert beside == output.parents[3] / reference
    assert (prefix_of(reference), is_manifest(reference)) == (OUTPUT, False)
    assert [(file.path, file.size_bytes) for file in manifest.files] == [
        ("_SUCCESS", 0),
        ("data/day=1/part-0", 4),
    ]
    assert manifest.folders == ("empty",)
    assert (beside.stat().st_mode & 0o777) == 0o644
    assert write_manifest(output, OUTPUT) == reference, "a commit that is repeated finds it"
    verify(output, reference)


def test_manifest_is_on_disk_before_it_is_named(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed: list[str] = []

    def fsync(fd: int) -> None:
        flushed.append(str(Path(f"/proc/self/fd/{fd}").readlink()))

    monkeypatch.setattr(os, "fsync", fsync)
    write_manifest(output, OUTPUT)

    assert re.fullmatch(rf"{output.parent}/\.1\.manifest-[0-9a-f]{{64}}\.json\..*\.part", flushed[0])
    assert flushed[1:] == [str(output.parent)]


@pytest.mark.parametrize("what", ["link", "folder link", "pipe", "newline", "not utf-8", "backslash"])
def test_what_other_systems_cannot_hold_is_refused(output: Path, what: str) -> None:
    match what:
        case "link":
            (output / "odd").symlink_to("/etc/passwd")
        case "folder link":
            (output / "data" / "odd").symlink_to("/etc")
        case "pipe":
            os.mkfifo(output / "odd")
        case "newline":
            (output / "odd\nname").touch()
        case "not utf-8":
            Path(os.fsdecode(os.fsencode(output) + b"/odd\xff")).touch()
        case _:
            (output / "odd\\name").touch()

    with pytest.raises(OutputRefusedError, match="odd"):
        write_manifest(output, OUTPUT)

    assert list(output.parent.iterdir()) == [output]


def test_output_that_is_a_link_is_refused(output: Path) -> None:
    moved = output.rename(output.with_name("moved"))
    output.symlink_to(moved)

    with pytest.raises(NotADirectoryError):
        write_manifest(output, OUTPUT)


def test_file_that_changes_while_it_is_read_is_refused(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def changed(_file: object, sha256: Any) -> Any:
        with (output / "_SUCCESS").open("ab") as file:
            file.write(b"late")
        return sha256

    monkeypatch.setattr("nimbus.worker.data.tree.digested", changed)

    with pytest.raises(OutputRefusedError, match="'_SUCCESS' was written to after the task had ended"):
        write_manifest(output, OUTPUT)


def test_file_that_becomes_a_link_while_it_is_listed_is_not_followed(
    output: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    digested = FoundFolder.digested

    def replaced(folder: FoundFolder, name: str) -> object:
        (output / "_SUCCESS").unlink(missing_ok=True)
        (output / "_SUCCESS").symlink_to("/etc/passwd")
        return digested(folder, name)

    monkeypatch.setattr(FoundFolder, "digested", replaced)

    with pytest.raises(OSError, match="_SUCCESS"):
        write_manifest(output, OUTPUT)


def test_file_that_cannot_be_read_is_named(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = os.open

    def refused(path: str, *more: int, **named: int) -> int:
        if path == "part-0":
            raise PermissionError(13, "Permission denied", path)
        return opened(path, *more, **named)

    monkeypatch.setattr(os, "open", refused)  # root could read it

    with pytest.raises(PermissionError, match="data/day=1/part-0"):
        write_manifest(output, OUTPUT)


def test_number_of_files_is_limited(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MAX_FILES", 3)
    write_manifest(output, OUTPUT)
    (output / "another").mkdir()

    with pytest.raises(OutputRefusedError, match=r"more than 3 files.*write fewer, larger files"):
        write_manifest(output, OUTPUT)


def test_size_of_a_manifest_is_limited(output: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MAX_MANIFEST_BYTES", 100)

    with pytest.raises(OutputRefusedError, match="the limit is 100"):
        write_manifest(output, OUTPUT)


@pytest.mark.thorough
def test_hundred_thousand_files_have_a_manifest(output: Path) -> None:
    for number in range(MAX_FILES - 3):
        os.close(os.open(output / "data" / f"{number}", os.O_CREAT))

    reference = write_manifest(output, OUTPUT)

    assert len(read_manifest(output, reference).files) == MAX_FILES - 1
    verify(output, reference)


@pytest.mark.parametrize(
    "change",
    ["bytes", "bytes and manifest", "longer", "missing", "more", "link", "gone", "manifest", "no manifest"],
)
def test_output_that_is_not_what_was_committed_is_refused(output: Path, tmp_path: Path, change: str) -> None:
    place = FolderPlace(tmp_path / "data")
    reference = place.commit(output, OUTPUT, published=True)
    part, manifest = output / "data" / "day=1" / "part-0", tmp_path / "data" / reference
    match change:
        case "bytes":
            part.write_bytes(b"ROWS")
        case "bytes and manifest":
            part.write_bytes(b"ROWS")
            manifest.write_bytes((tmp_path / "data" / write_manifest(output, OUTPUT)).read_bytes())
        case "longer":
            part.write_bytes(b"rows and more")
        case "missing":
            part.unlink()
        case "more":
            (output / "data" / "part-1").touch()
        case "link":
            part.rename(tmp_path / "part")
            part.symlink_to(tmp_path / "part")
        case "gone":
            output.rename(tmp_path / "gone")
        case "manifest":
            manifest.write_bytes(manifest.read_bytes().replace(b"part-0", b"part-1"))
        case _:
            manifest.unlink()

    with pytest.raises(InputRefusedError, match=re.escape(OUTPUT)):
        place.fetch(reference)

    assert not place.is_here(reference)


def test_published_output_is_verified_once_by_each_process(
    output: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = FolderPlace(tmp_path / "data")
    reference = place.commit(output, OUTPUT, published=True)
    reader, verified = FolderPlace(tmp_path / "data"), list[Path]()
    monkeypatch.setattr(
        "nimbus.worker.data.places.verify", lambda folder, _reference: verified.append(folder)
    )

    assert not reader.is_here(reference)
    reader.fetch(reference)
    reader.fetch(reference)

    assert reader.is_here(reference)
    assert verified == [output] == [reader.input(reference)]


def test_output_that_is_not_published_has_no_manifest(output: Path, tmp_path: Path) -> None:
    place = FolderPlace(tmp_path / "data")

    assert place.commit(output, OUTPUT) == OUTPUT
    assert place.is_here(OUTPUT)
    assert list(output.parent.iterdir()) == [output]
