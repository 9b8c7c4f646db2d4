"""Laws of publishing: a release has the bytes of its files, independent of earlier releases."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blobsync import PublishedRelease, RetryPolicy, SourceFile, publish
from blobsync.publishing import reuse as plan
from blobsync.publishing.reuse import KnownPack, PackPlan, plan_packs
from blobsync.release.layout import Pack
from blobsync.release.manifest import Role
from blobsync.testing.memory import MemoryObjectStore
from tests.blobsync.release_reader import read_release
from tests.thorough import examples

QUICK = RetryPolicy(first_wait=timedelta(milliseconds=1), max_wait=timedelta(milliseconds=5))
FEW = 3

contents = st.binary(max_size=40) | st.integers(0, 9).map(lambda number: bytes([number]) * 700)
PATHS = [f"{folder}/{file}" for folder in "abc" for file in "defgh"]
trees = st.dictionaries(st.sampled_from(PATHS), contents)


@pytest.fixture(autouse=True, scope="module")
def _small_packs() -> Iterator[None]:
    """Small packs and few of them, so that small trees cover every case."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(plan, "PACK_STORED_BYTES", 500)
        patch.setattr(plan, "PACK_RAW_BYTES", 1_000)
        patch.setattr(plan, "MAX_REUSED_PACKS", FEW)
        yield


def _publish(store: MemoryObjectStore, tree: Mapping[str, bytes], name: str = "p") -> PublishedRelease:
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, (path, data) in enumerate(tree.items()):
            file = Path(folder) / str(number)
            file.write_bytes(data)
            files.append(SourceFile(path, file, Role.CODE, executable=False))
        return publish(store, name=name, files=files, retry=QUICK, published_by="law")


@settings(max_examples=examples(20))
@given(history=st.lists(trees, min_size=1, max_size=6))
def test_each_release_of_a_history_has_its_files_and_the_name_it_has_anywhere(
    history: list[dict[str, bytes]],
) -> None:
    store = MemoryObjectStore()
    made = [_publish(store, tree) for tree in history]

    for tree, release in zip(history, made, strict=True):
        assert read_release(store, "p", release.digest) == tree
        assert release.digest == _publish(MemoryObjectStore(), tree).digest
        assert release.uploaded_bytes + release.reused_bytes == sum(map(len, set(tree.values())))


@settings(max_examples=examples(20))
@given(history=st.lists(trees, min_size=1, max_size=4), tree=trees)
def test_dry_run_tells_the_truth(history: list[dict[str, bytes]], tree: dict[str, bytes]) -> None:
    store = MemoryObjectStore()
    for earlier in history:
        _publish(store, earlier)
    before = len(store.writes)
    with tempfile.TemporaryDirectory() as folder:
        files = []
        for number, (path, data) in enumerate(tree.items()):
            (Path(folder) / str(number)).write_bytes(data)
            files.append(SourceFile(path, Path(folder) / str(number), Role.CODE, executable=False))
        told = publish(store, name="p", files=files, retry=QUICK, published_by="law", dry_run=True)
        assert len(store.writes) == before
        made = publish(store, name="p", files=files, retry=QUICK, published_by="law")

    assert (told.digest, told.packs_written, told.layout.packs) == (
        made.digest,
        made.packs_written,
        made.layout.packs,
    )
    assert (told.uploaded_bytes, told.sent_bytes) == (made.uploaded_bytes, made.sent_bytes)


@st.composite
def _situation(draw: st.DrawFn) -> tuple[dict[str, int], list[KnownPack]]:
    wanted = draw(st.dictionaries(st.sampled_from("abcdefghij"), st.integers(0, 100)))
    packs = []
    for number in range(draw(st.integers(0, 8))):
        live = draw(st.lists(st.sampled_from(sorted(wanted)), unique=True)) if wanted else []
        dead_bytes = draw(st.integers(0, 200))
        raw_bytes = sum(wanted[name] for name in live) + dead_bytes
        packs.append(KnownPack(Pack(f"{number:064x}", 100), raw_bytes, tuple(live)))
    return wanted, packs


@given(situation=_situation())
def test_plan_leaves_nothing_out_and_reuses_only_what_pays(
    situation: tuple[dict[str, int], list[KnownPack]],
) -> None:
    wanted, packs = situation

    made: PackPlan = plan_packs(wanted, packs)

    covered = {name for item in made.reused for name in item.live}
    assert covered | made.to_pack == set(wanted)
    assert not covered & made.to_pack
    assert set(made.reused) <= set(packs) and len(set(made.reused)) == len(made.reused)
    for item in made.reused:
        assert 2 * sum(wanted[name] for name in item.live) >= item.raw_bytes
    most = max(FEW, 2 * -(-sum(wanted.values()) // 500))
    assert len(made.reused) + bool(made.to_pack) <= most
