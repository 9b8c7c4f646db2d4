"""Which packs of earlier releases are reused, and which files are packed together."""

from __future__ import annotations

import pytest

from blobsync.publishing.packing import pack_jobs
from blobsync.publishing.reuse import (
    MAX_REUSED_PACKS,
    PACK_RAW_BYTES,
    PACK_STORED_BYTES,
    KnownPack,
    pack_limits,
    plan_packs,
)
from blobsync.release.layout import MAX_PACKS, Pack
from blobsync.release.manifest import MAX_ARTIFACTS, PACKED_BYTES, Artifact, Manifest, Role
from blobsync.release.pack import MAX_FRAME_BYTES, MAX_PACK_BYTES


def known(number: int, raw_bytes: int, *live: str) -> KnownPack:
    return KnownPack(Pack(f"{number:064x}", 1_000), raw_bytes, live)


def test_pack_of_which_half_is_wanted_is_used_and_one_of_which_less_is_wanted_is_not() -> None:
    wanted = {"a": 50, "b": 49}

    plan = plan_packs(wanted, [known(1, 100, "a"), known(2, 100, "b")])

    assert [item.pack.name[-1] for item in plan.reused] == ["1"]
    assert plan.to_pack == {"b"}


def test_pack_whose_wanted_part_is_in_another_one_is_not_used() -> None:
    plan = plan_packs({"a": 10, "b": 10}, [known(1, 10, "a"), known(2, 20, "a", "b")])

    assert [item.pack.name[-1] for item in plan.reused] == ["2"]
    assert plan.to_pack == frozenset()


def test_many_packs_are_merged_down_to_half_of_the_limit() -> None:
    wanted = {f"{number}": number + 1 for number in range(MAX_REUSED_PACKS + 1)}
    packs = [known(number, number + 1, f"{number}") for number in range(MAX_REUSED_PACKS + 1)]

    plan = plan_packs(wanted, packs)

    assert len(plan.reused) == MAX_REUSED_PACKS // 2
    assert plan.to_pack == {f"{number}" for number in range(MAX_REUSED_PACKS // 2 + 1)}  # the smallest ones


def test_new_pack_counts_towards_the_limit() -> None:
    wanted = {f"{number}": 1 for number in range(MAX_REUSED_PACKS + 1)}
    packs = [known(number, 1, f"{number}") for number in range(MAX_REUSED_PACKS)]

    assert len(plan_packs(wanted, packs).reused) == MAX_REUSED_PACKS // 2
    del wanted[f"{MAX_REUSED_PACKS}"]
    assert len(plan_packs(wanted, packs).reused) == MAX_REUSED_PACKS


def test_large_release_may_have_more_packs() -> None:
    count = 4 * MAX_REUSED_PACKS
    wanted = {f"{number}": PACK_STORED_BYTES for number in range(count)}
    packs = [known(number, PACK_STORED_BYTES, f"{number}") for number in range(count)]

    assert plan_packs(wanted, packs).to_pack == frozenset()


def test_pack_with_nothing_but_the_empty_file_is_used() -> None:
    assert plan_packs({"e": 0}, [known(1, 0, "e")]).to_pack == frozenset()
    assert plan_packs({"e": 0}, [known(1, 5, "e")]).to_pack == {"e"}


@pytest.mark.parametrize("total_bytes", [0, 1, 1 << 30, 1 << 36, MAX_ARTIFACTS * PACKED_BYTES])
def test_packs_fit_their_limits_and_their_number_fits_a_layout(total_bytes: int) -> None:
    stored, raw = pack_limits(total_bytes)

    assert stored >= PACK_STORED_BYTES and raw >= PACK_RAW_BYTES
    assert stored + 2 * MAX_FRAME_BYTES <= MAX_PACK_BYTES
    jobs = -(-total_bytes // (raw - PACKED_BYTES))
    assert raw <= 2 * stored  # so a job makes at most two packs, or one if its data can be compressed
    assert 2 * jobs <= MAX_PACKS


def test_jobs_follow_the_paths_and_have_each_content_once() -> None:
    artifacts = [
        Artifact(path, size, f"{digest:064x}", Role.CODE, executable=False)
        for path, size, digest in [("b/2", 6, 2), ("a/1", 4, 1), ("c/3", 4, 3), ("d/1", 4, 1), ("e", 4, 5)]
    ]
    manifest = Manifest("p", tuple(artifacts))

    jobs = list(pack_jobs(manifest, frozenset(f"{digest:064x}" for digest in (1, 2, 3)), raw_limit=10))

    assert [[int(blob.sha256, 16) for blob in job] for job in jobs] == [[1, 2], [3]]
