"""Hostile input causes no write outside the store, and no unverified bytes count."""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from blake3 import blake3

from blobsync.errors import BlobMissingError, BlobSyncError
from blobsync.local.releases import Release
from blobsync.local.store import LocalStore
from blobsync.release.layout import Layout, Pack
from blobsync.release.manifest import CHUNK_BYTES, PACKED_BYTES, Artifact, Manifest, ReleaseRef, Role
from blobsync.release.pack import MAX_PACK_BYTES, MIN_PACK_BYTES
from tests.blobsync.hostile_samples import LAYOUT, VALID, Case, crafted, fuzzed
from tests.blobsync.local_store_samples import Sample, bring, contents, fill, sample

FUZZED = 60
"""For each of the valid ones."""
MAX_BYTES = 4 << 20
"""Larger ones are left to the tests of the formats."""

GOOD = {"main.py": b"one", "lib/two.py": b"two" * 1000, "empty": b""}


@pytest.fixture
def sandbox(tmp_path: Path) -> Iterator[Path]:
    """A folder with a secret file. Only a store may be added to it, and the secret must not change."""
    (tmp_path / "secret").write_text("untouched")
    yield tmp_path
    assert sorted(path.name for path in tmp_path.iterdir()) == ["secret", "store"]
    assert (tmp_path / "secret").read_text() == "untouched"


@pytest.fixture
def local(sandbox: Path) -> Iterator[LocalStore]:
    with LocalStore(sandbox / "store") as local:
        yield local


def _hostile(kind: str) -> list[Case]:
    made = [case for case in crafted() if len(case.data) <= MAX_BYTES]
    made += [fuzzed(valid, seed) for valid in VALID for seed in range(FUZZED)]
    return [case for case in made if case.kind == kind]


def _files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if not path.is_dir()}


def test_hostile_pack_is_refused_and_nothing_of_it_stays(sandbox: Path, local: LocalStore) -> None:
    """The name of the pack fits its bytes, which an attacker can achieve. Only its content is invalid."""
    before = _files(sandbox)
    refused = 0
    for case in _hostile("pack"):
        if not MIN_PACK_BYTES <= len(case.data) <= MAX_PACK_BYTES:
            continue
        pack = Pack(blake3(case.data).hexdigest(), len(case.data))
        try:
            bring(local, pack, case.data)
        except BlobSyncError:
            refused += 1
            assert not local.has(pack), str(case)
            assert _files(sandbox) == before, str(case)
        else:
            assert local.has(pack), str(case)
            before = _files(sandbox)

    assert refused >= 150


def test_pack_with_other_bytes_than_its_name_is_refused_and_nothing_of_it_stays(
    sandbox: Path, local: LocalStore
) -> None:
    before = _files(sandbox)
    good = next(case for case in VALID if case.kind == "pack").data
    for seed in range(100):
        data = fuzzed(Case("pack", "", good), seed).data
        pack = Pack(blake3(good).hexdigest(), len(data))
        if data == good:
            continue
        with pytest.raises(BlobSyncError):
            bring(local, pack, data)
        assert not local.has(pack)
        assert _files(sandbox) == before


def test_hostile_manifest_on_the_disk_is_not_followed(sandbox: Path, local: LocalStore) -> None:
    """The manifest has the correct digest for its bytes, and a valid layout beside it."""
    folder = sandbox / "store" / "releases" / "p"
    folder.mkdir()
    refused = 0
    for case in _hostile("manifest"):
        digest = hashlib.sha256(case.data).hexdigest()
        (folder / f"{digest}.json").write_bytes(case.data)
        (folder / f"{digest}.layout").write_bytes(LAYOUT.encode())

        kept = local.kept(ReleaseRef("p", digest))

        if kept is None:
            refused += 1
            assert not (folder / f"{digest}.json").exists(), str(case)
        else:
            assert kept.manifest.canonical == case.data
            with pytest.raises(BlobMissingError):
                local.materialise(kept.manifest.ref)
        assert not list((sandbox / "store" / "trees").iterdir()), str(case)
    assert refused >= 400


def test_hostile_layout_on_the_disk_is_not_followed(sandbox: Path, local: LocalStore) -> None:
    release = fill(local, sample(GOOD))
    path = sandbox / "store" / "releases" / "p" / f"{release.manifest.digest}.layout"
    refused = 0
    for case in _hostile("layout"):
        path.unlink(missing_ok=True)
        path.write_bytes(case.data)

        if local.kept(release.manifest.ref) is None:
            refused += 1
            with pytest.raises(BlobSyncError):
                local.materialise(release.manifest.ref)
            assert not list((sandbox / "store" / "trees").iterdir()), str(case)
        else:
            with contextlib.suppress(BlobSyncError):
                local.materialise(release.manifest.ref)
    assert refused >= 200

    local.keep(release.known)
    assert contents(local.materialise(release.manifest.ref)) == GOOD


@pytest.fixture
def good(local: LocalStore) -> Sample:
    return fill(local, sample(GOOD))


@pytest.mark.parametrize("by", [-1, 1, 1000])
def test_layout_that_lies_about_the_size_of_a_pack_costs_nobody_that_pack(
    local: LocalStore, good: Sample, by: int
) -> None:
    """Otherwise one publisher could make every host delete a pack that another has published."""
    (pack,) = good.packs
    lying = Pack(pack.name, pack.size_bytes + by)
    layout = Layout((lying,), "somebody", good.layout.published_at)
    other = Manifest("q", good.manifest.artifacts)

    assert not local.has(lying)
    with pytest.raises(BlobSyncError):
        bring(local, lying, (good.objects[pack] + bytes(1000))[: lying.size_bytes])
    assert local.missing(Release(other, layout)).objects == (lying,)
    assert local.keep(Release(other, layout)).objects == (lying,)
    assert local.kept(other.ref) is None

    assert local.has(pack)
    assert not local.missing(good.known)
    assert contents(local.materialise(good.manifest.ref)) == GOOD


@pytest.mark.parametrize("size", [PACKED_BYTES + 1, CHUNK_BYTES + 1])
@pytest.mark.parametrize("by", [-1, 1])
def test_manifest_that_lies_about_the_size_of_a_blob_costs_nobody_that_blob(
    sandbox: Path, size: int, by: int
) -> None:
    release = sample({"large": bytes(size)})
    (blob,) = (item.blob for item in release.manifest.artifacts)
    lying = replace(blob, size_bytes=size + by)
    with LocalStore(sandbox / "store") as local:
        fill(local, release)
    (sandbox / "store" / "verified").unlink()  # so the store must hash the blob

    with LocalStore(sandbox / "store") as local:
        assert not local.has(lying)
        assert local.has(blob)
        assert not local.has(lying)
        assert not local.missing(release.known)


def test_manifest_that_lies_about_a_size_gets_no_tree(local: LocalStore, good: Sample) -> None:
    items = [
        Artifact(item.path, item.size_bytes + 1, item.sha256, item.role, item.executable)
        for item in good.manifest.artifacts
    ]
    lying = Manifest("q", tuple(items))

    with pytest.raises(BlobSyncError):
        local.keep(Release(lying, good.layout))
    with pytest.raises(BlobSyncError):
        local.materialise(lying.ref)
    assert not local.missing(good.known)


def test_manifest_that_wants_what_no_pack_has_gets_no_tree(local: LocalStore, good: Sample) -> None:
    wanting = Manifest("q", (*good.manifest.artifacts, Artifact("x", 7, "7" * 64, Role.CODE, False)))

    with pytest.raises(BlobSyncError):
        local.keep(Release(wanting, good.layout))
    with pytest.raises(BlobSyncError):
        local.materialise(wanting.ref)
    assert local.kept(wanting.ref) is None
