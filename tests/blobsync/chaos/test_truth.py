"""The reader that the chaos tests of blobsync rely on finds faults."""

from __future__ import annotations

from pathlib import Path

from blobsync.local.store import LocalStore
from tests.blobsync.chaos.truth import audit
from tests.blobsync.local_store_samples import fill, flip_a_byte_unseen, sample, visible


def test_audit_finds_nothing_in_a_sound_store_and_a_flipped_byte_in_each_file(tmp_path: Path) -> None:
    release = sample({"a": b"1" * 500, "b/c": b"2" * 900, "large": b"3" * (5 << 20)})
    truth = {release.manifest.digest: release.files}
    with LocalStore(tmp_path) as local:
        tree = local.materialise(fill(local, release).manifest.ref)
    assert audit(tmp_path, truth) == []

    records = sorted((tmp_path / "releases").rglob("*.json"))
    for path in [*visible(tmp_path), *records, tree / "a"]:
        flip_a_byte_unseen(path)
        assert audit(tmp_path, truth) != [], path
        flip_a_byte_unseen(path)
        assert audit(tmp_path, truth) == []


def test_audit_finds_a_file_that_nobody_published(tmp_path: Path) -> None:
    release = sample({"a": b"1" * 500})
    with LocalStore(tmp_path) as local:
        local.materialise(fill(local, release).manifest.ref)

    assert audit(tmp_path, {}) != []
