"""A look at a kept release reads its record. It reads the manifest only if there is no valid record."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from blobsync import BlobMissingError, LocalStore, Manifest, ReleaseRef
from blobsync.local.gc import gc
from blobsync.local.releases import KeptRecord, Release
from blobsync.release.manifest import Blob
from tests.blobsync.local_store_samples import Sample, contents, fill, overwrite, sample
from tests.blobsync.sync_samples import SOON, Rig

Eventually = Callable[..., None]
OFTEN = timedelta(milliseconds=200)
LARGE = b"large" * (1 << 20)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Sizes of the manifests that were parsed."""
    sizes: list[int] = []
    parse = Manifest.parse

    def counted(data: bytes) -> Manifest:
        sizes.append(len(data))
        return parse(data)

    monkeypatch.setattr(Manifest, "parse", counted)
    return sizes


def record_of(root: Path, ref: ReleaseRef) -> Path:
    return root / "releases" / ref.name / f"{ref.digest}.record"


def kept(root: Path, release: Sample) -> None:
    with LocalStore(root) as local:
        fill(local, release)


def test_new_syncer_says_ready_of_a_kept_release_without_reading_its_manifest(
    rig: Rig, eventually: Eventually, parsed: list[int]
) -> None:
    p = rig.put(sample({"a": b"1", "same": b"1", "large": LARGE}))
    first = rig.syncer(p)
    eventually(lambda: first.readiness().is_ready(p))
    before = first.readiness()
    rig.stop()
    rig.store.unavailable = True
    parsed.clear()

    again = rig.syncer(p)

    eventually(lambda: again.readiness().is_ready(p))
    assert again.readiness() == before
    assert again.readiness().releases[p].artifact_count == 3
    assert again.readiness().total_bytes == 1 + len(LARGE)
    assert not parsed
    assert (again.ensure(p, SOON) / "a").read_bytes() == b"1"
    assert parsed, "making a tree needs the manifest"


@pytest.mark.parametrize("damage", ["gone", "empty", "flipped", "foreign", "a link"])
def test_record_that_is_not_good_costs_a_reading_and_is_written_anew(
    rig: Rig, eventually: Eventually, parsed: list[int], damage: str
) -> None:
    p, q = rig.publish("p", a="1", b="2"), rig.publish("q", c="3")
    first = rig.syncer(p, q)
    eventually(lambda: first.readiness().releases and first.readiness().all_ready)
    rig.stop()
    record = record_of(rig.folder / "local", p)
    good = record.read_bytes()
    others = {
        "gone": None,
        "empty": b"",
        "flipped": good[:90] + bytes([good[90] ^ 1]) + good[91:],
        "foreign": record_of(rig.folder / "local", q).read_bytes(),
        "a link": b"",
    }
    record.unlink()
    if damage == "a link":
        record.symlink_to(record_of(rig.folder / "local", q))
    elif (data := others[damage]) is not None:
        record.write_bytes(data)
    parsed.clear()
    rig.store.unavailable = True

    again = rig.syncer(p)

    eventually(lambda: again.readiness().is_ready(p))
    assert parsed
    eventually(lambda: not record.is_symlink() and record.exists() and record.read_bytes() == good)


def test_record_of_another_layout_does_not_count(tmp_path: Path) -> None:
    release = sample({"a": b"1" * 50, "b": b"2" * 50}, members=1)
    kept(tmp_path, release)
    ref = release.manifest.ref
    layout = record_of(tmp_path, ref).with_suffix(".layout")
    short = replace(release.layout, packs=release.layout.packs[:1])
    layout.unlink()
    layout.write_bytes(short.encode())  # a layout that lacks a pack

    with LocalStore(tmp_path) as local:
        found = local.kept(ref)
        assert found is not None
        assert not found.is_recorded
        with pytest.raises(Exception, match="no pack in the layout"):
            local.missing(found)


def test_release_whose_manifest_is_gone_is_not_kept_whatever_its_record_says(tmp_path: Path) -> None:
    release = sample({"a": b"1"})
    kept(tmp_path, release)
    ref = release.manifest.ref
    record_of(tmp_path, ref).with_suffix(".json").unlink()

    with LocalStore(tmp_path) as local:
        assert local.kept(ref) is None


def test_damaged_manifest_is_written_anew_when_its_release_is_kept_again(tmp_path: Path) -> None:
    release = sample({"a": b"1"})
    kept(tmp_path, release)
    manifest = record_of(tmp_path, release.manifest.ref).with_suffix(".json")
    overwrite(manifest, manifest.read_bytes().replace(b'"path":"a"', b'"path":"b"'))

    with LocalStore(tmp_path) as local:
        assert not local.keep(release.known)

        assert contents(local.materialise(release.manifest.ref)) == {"a": b"1"}


def test_damaged_manifest_is_found_when_it_is_read_and_goes_to_quarantine(tmp_path: Path) -> None:
    release = sample({"a": b"1"})
    kept(tmp_path, release)
    ref = release.manifest.ref
    manifest = record_of(tmp_path, ref).with_suffix(".json")
    overwrite(manifest, manifest.read_bytes().replace(b'"path":"a"', b'"path":"b"'))

    with LocalStore(tmp_path) as local:
        found = local.kept(ref)
        assert found is not None
        assert not local.missing(found)
        for read in (lambda: found.manifest, lambda: list(local.read(ref, "a"))):
            with pytest.raises(BlobMissingError):
                read()
        assert not manifest.exists()
        assert local.kept(ref) is None
    assert len(list((tmp_path / "quarantine").iterdir())) == 1


def test_scrub_finds_a_damaged_manifest_and_it_is_fetched_anew(rig: Rig, eventually: Eventually) -> None:
    p = rig.publish("p", a="1")
    syncer = rig.syncer(p, scrub=OFTEN)
    eventually(lambda: syncer.readiness().is_ready(p))
    manifest = record_of(rig.folder / "local", p).with_suffix(".json")
    good = manifest.read_bytes()

    overwrite(manifest, good.replace(b'"path":"a"', b'"path":"b"'))

    eventually(lambda: list((rig.folder / "local" / "quarantine").iterdir()))
    eventually(lambda: manifest.exists() and manifest.read_bytes() == good)
    eventually(lambda: syncer.readiness().is_ready(p) and syncer.readiness().quarantined_count == 1)


def test_lost_object_of_a_recorded_release_is_missed_with_its_files(tmp_path: Path) -> None:
    release = sample({"a": b"1", "large": LARGE})
    kept(tmp_path, release)
    (pack,) = release.layout.packs

    with LocalStore(tmp_path) as local:
        found = local.kept(release.manifest.ref)
        assert found is not None
        assert found.is_recorded
        assert set(found.objects) == set(release.objects)
        local._objects.path(pack).unlink()

        assert [item.path for item in local.missing(found).artifacts] == ["a"]


def test_record_goes_with_its_release(tmp_path: Path) -> None:
    release = sample({"a": b"1"})
    kept(tmp_path, release)

    with LocalStore(tmp_path) as local:
        for _ in range(2):
            gc(local, keep=set(), grace=timedelta(0), allow_empty=True, max_share=1.0)

    assert not [path for path in (tmp_path / "releases").rglob("*") if path.is_file()]


def test_record_says_again_what_it_was_told() -> None:
    chunked = Blob("a" * 64, 40 << 20, ("b" * 64, "c" * 64, "d" * 64))
    record = KeptRecord("1" * 64, "2" * 64, 1000, 3, 99, (chunked, Blob("e" * 64, 5 << 20)))

    assert KeptRecord.parse(record.encode(), release="1" * 64, layout="2" * 64) == record
    assert KeptRecord.parse(record.encode(), release="3" * 64, layout="2" * 64) is None
    assert KeptRecord.parse(record.encode(), release="1" * 64, layout="3" * 64) is None


def test_kept_releases_are_equal_if_release_and_layout_are() -> None:
    one, other = sample({"a": b"1"}), sample({"a": b"2"})

    assert Release(one.manifest, one.layout) == Release(one.manifest, one.layout)
    assert len({Release(one.manifest, one.layout), Release(one.manifest, one.layout)}) == 1
    assert Release(one.manifest, one.layout) != Release(other.manifest, one.layout)
    assert Release(one.manifest, one.layout) != Release(one.manifest, other.layout)
