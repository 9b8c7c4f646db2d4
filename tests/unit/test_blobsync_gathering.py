"""Small files that come one by one, into a pack: verified, durable, and whole or not at all."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blobsync import LocalStore, LocalStoreError
from blobsync.errors import CorruptBlobError
from blobsync.local.gc import gc
from blobsync.release.loose import Bundle, bundles_of
from tests.local_store_samples import Sample, bring, contents, packed, sample, sha

FILES = {"a": b"1" * 5000, "b/b": b"new", "empty": b""}


def loose() -> Sample:
    made = sample(FILES)
    return replace(made, layout=replace(made.layout, packs=(), loose="data/"))


def bundle_of(release: Sample) -> Bundle:
    (bundle,) = bundles_of(release.manifest, "data/")
    return bundle


def gathered(local: LocalStore, release: Sample) -> None:
    """As a syncer does."""
    gathering = local.gather(bundle_of(release))
    assert gathering is not None
    with gathering:
        for file in gathering.bundle.files:
            gathering.add(file, release.files[file.path])
        if gathering.count:
            gathering.install()
    local.keep(release.manifest, release.layout)


@pytest.fixture
def local(tmp_path: Path) -> Iterator[LocalStore]:
    with LocalStore(tmp_path / "local") as made:
        yield made


def test_what_was_gathered_is_here_and_is_not_gathered_again(local: LocalStore) -> None:
    release = loose()
    assert [item.path for item in local.lacks(release.manifest, release.layout).artifacts] == list(FILES)

    gathered(local, release)

    assert not local.lacks(release.manifest, release.layout)
    assert contents(local.materialise(release.manifest)) == FILES
    again = local.gather(bundle_of(release))
    assert again is not None
    with again:
        assert again.bundle.files == ()


def test_other_bytes_are_not_taken(local: LocalStore) -> None:
    release = loose()
    gathering = local.gather(bundle_of(release))
    assert gathering is not None
    with gathering:
        for data in (b"2" * 5000, b"1" * 4999, b"1" * 5001, b""):
            with pytest.raises(CorruptBlobError, match="data/a"):
                gathering.add(gathering.bundle.files[0], data)
        gathering.add(gathering.bundle.files[1], FILES["b/b"])
        gathering.install()

    lacking = local.lacks(release.manifest, release.layout)
    assert [item.path for item in lacking.artifacts] == ["a", "empty"]
    assert [item.name for item in lacking.objects] == [bundle_of(release).name]


def test_bundle_is_gathered_by_one_at_a_time_and_nothing_stays_of_it_if_it_is_left(local: LocalStore) -> None:
    release = loose()
    gathering = local.gather(bundle_of(release))
    assert gathering is not None
    with gathering:
        gathering.add(gathering.bundle.files[0], FILES["a"])
        assert local.gather(bundle_of(release)) is None

    assert list((local.root / "partial").iterdir()) == []
    assert list((local.root / "packs").glob("*/*")) == []
    gathered(local, release)


def test_error_before_any_step_leaves_nothing_false_and_the_next_try_completes(tmp_path: Path) -> None:
    release, steps = loose(), list[str]()
    with LocalStore(tmp_path / "steps", on_step=steps.append) as local:
        gathered(local, release)
    assert {"gather-open", "gather-write", "fsync", "rename", "fsync-folder", "index"} <= set(steps)

    for number in range(len(steps)):
        root = tmp_path / str(number)
        with LocalStore(root, on_step=_crash_at(number)) as dying, pytest.raises(_CrashedError):
            gathered(dying, release)
        with LocalStore(root) as local:
            gathered(local, release)
            assert contents(local.materialise(release.manifest)) == FILES
            kept = local.kept(release.manifest.ref)
            assert kept is not None
            assert not local.verify(kept.manifest)
            assert list((root / "quarantine").iterdir()) == []
            gc(local, {release.manifest.digest}, grace=timedelta(0), max_share=1.0)
            gc(local, {release.manifest.digest}, grace=timedelta(0), max_share=1.0)
            assert list((root / "partial").iterdir()) == []
            assert len(list((root / "packs").glob("*/*"))) == 1


class _CrashedError(Exception):
    pass


def _crash_at(number: int) -> Callable[[str], None]:
    left = iter(range(number + 1))

    def step(_name: str) -> None:
        if next(left, None) == number:
            raise _CrashedError

    return step


@pytest.mark.parametrize("call", ["fsync", "fchmod", "replace"])
def test_disk_that_fails_is_told_and_it_goes_on_when_it_heals(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    release = loose()

    def fails(*_args: object, **_named: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(*((os, call) if call != "replace" else (Path, call)), fails)
        with pytest.raises(LocalStoreError, match="No space"):
            gathered(local, release)
        assert local.lacks(release.manifest, release.layout)

    gathered(local, release)
    assert not local.lacks(release.manifest, release.layout)


def test_pack_that_is_replaced_by_another_file_does_not_count(local: LocalStore) -> None:
    release = loose()
    gathered(local, release)
    (pack,) = (local.root / "packs").glob("*/*")
    data = pack.read_bytes()
    pack.unlink()
    pack.write_bytes(data[:-1] + b"?")

    lacking = local.lacks(release.manifest, release.layout)

    assert {item.path for item in lacking.artifacts} == set(FILES)
    gathered(local, release)
    assert contents(local.materialise(release.manifest)) == FILES


def test_files_in_all_too_many_packs_are_fetched_anew_together(
    local: LocalStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = {f"f{number}": f"{number}".encode() for number in range(6)}
    release = sample(files, members=1)
    for item, data in release.objects.items():
        bring(local, item, data)
    layout = replace(release.layout, packs=(), loose="data/")
    assert not local.lacks(release.manifest, layout)
    local.close()

    monkeypatch.setattr("blobsync.local.loose._MOST_OLD_PACKS", 2)
    with LocalStore(local.root) as again:
        lacking = again.lacks(release.manifest, layout)
        assert len(lacking.artifacts) == 4
        (bundle,) = lacking.objects
        assert isinstance(bundle, Bundle)
        gathering = again.gather(bundle)
        assert gathering is not None
        with gathering:
            for file in gathering.bundle.files:
                gathering.add(file, files[file.path])
            gathering.install()
        again.keep(release.manifest, layout)
        kept = again.kept(release.manifest.ref)
        assert kept is not None
        assert len(kept.layout.packs) == 3
        assert contents(again.materialise(release.manifest)) == files


@given(
    files=st.dictionaries(
        st.sampled_from("abcdefgh"), st.sampled_from([b"", b"1", b"22", b"333"]), min_size=1
    ),
    here=st.sets(st.sampled_from([b"", b"1", b"22", b"333", b"other"])),
)
@settings(max_examples=30, deadline=None)
def test_just_what_no_pack_of_this_store_has_is_lacking(files: dict[str, bytes], here: set[bytes]) -> None:
    release = sample(files)
    layout = replace(release.layout, packs=(), loose="data/")
    with TemporaryDirectory() as folder, LocalStore(Path(folder)) as local:
        for pack, data in packed(sorted(here), members=2).items():
            bring(local, pack, data)

        lacking = local.lacks(release.manifest, layout)

        assert {item.path for item in lacking.artifacts} == {
            path for path, data in files.items() if data not in here
        }
        wanted = [file.sha256 for item in lacking.objects if isinstance(item, Bundle) for file in item.files]
        assert sorted(wanted) == sorted({sha(data) for data in files.values() if data not in here})
