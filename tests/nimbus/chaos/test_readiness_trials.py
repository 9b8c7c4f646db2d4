"""A scheduler with a missing artifact never leads while a ready one is alive; afterwards it syncs and leads.

NIMBUS_READINESS_TRIALS: how many. NIMBUS_CHAOS_SEED: as printed, to draw the same trials.
"""

from __future__ import annotations

import random
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from blobsync.release.pack import parse_table
from blobsync.s3.store import S3ObjectStore
from nimbus.cli.options import object_store, settings_of
from tests.nimbus.chaos.cluster import Cluster, cluster, number_of, seconds_after, until
from tests.report import append, number_from, say, spread
from tests.thorough import thorough

TRIALS = number_from("NIMBUS_READINESS_TRIALS", 1)
SEED = number_from("NIMBUS_CHAOS_SEED", secrets.randbelow(1_000_000))
POLICY = "NIMBUS__LEADERSHIP__GATE_POLICY"
SESSION = timedelta(seconds=10)
"""Long, because a trial chooses which leader dies: a busy machine must not depose another one."""
_BOUND_S = 180.0

pytestmark = [pytest.mark.chaos, pytest.mark.timeout(180 + 240 * TRIALS)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Trial:
    """Actions and findings of one trial."""

    number: int
    broken: str
    policy: str
    """The gate policy of the incomplete scheduler."""
    queued_ahead: bool
    """Whether it was before the ready one in the queue, so that it got the lock first."""
    abdications: int
    """How often it took and released the lock while a ready one was alive."""
    led_too_early: int
    """How often it became leader while a ready one was alive: must be 0."""
    ready_led_s: float
    """Time from the leader's death until the ready one led."""
    healed_led_s: float
    """Time from the last ready one's death until the formerly incomplete one led."""
    synced_first: bool
    """Whether it was complete when it became leader; otherwise it led with the pipeline in quarantine."""


@pytest.fixture(autouse=True)
def _short_retries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIMBUS__SYNC__RETRY_MAX", "2s")


def test_incomplete_scheduler_never_leads_while_a_ready_one_lives(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(SEED)
    record = tmp_path / "readiness-trials.jsonl"
    say(capsys, [f"readiness: {TRIALS} trials, NIMBUS_CHAOS_SEED={SEED}, record in {record}"])
    trials: list[Trial] = []
    with cluster(tmp_path / "stack", session=SESSION) as chaos:
        for number in range(1, TRIALS + 1):
            trials.append(_trial(chaos, number, rng, monkeypatch))
            append(record, trials[-1])
        violations = [str(each) for each in chaos.ledger().violations]
    say(capsys, _summary(trials))

    assert [each for each in trials if each.led_too_early] == []
    assert [each for each in trials if each.policy == "strict" and not each.synced_first] == []
    assert [each for each in trials if each.queued_ahead and not each.abdications] == []
    assert violations == []


def _trial(chaos: Cluster, number: int, rng: random.Random, monkeypatch: pytest.MonkeyPatch) -> Trial:
    for killed in sorted(chaos.silent):
        chaos.start_scheduler(killed, wait=False)
    chaos.whole()
    broken, ahead = rng.randint(1, len(chaos.stack.schedulers)), number % 2 == 1
    policy = rng.choice(["strict", "per_pipeline"])
    monkeypatch.setenv(POLICY, policy)
    chaos.stop_scheduler(broken)
    leader = number_of(chaos.leader())
    other = next(each for each in (1, 2, 3) if each not in (broken, leader))
    pack = rng.choice(sorted(_packs(chaos, broken).rglob("*/*")))
    files = _members(pack)
    pack.unlink()
    begin = chaos.log()[-1].zxid
    with _away(_store(chaos), [pack.name]):
        chaos.start_scheduler(broken)
        until("what it lacks to be shown", _BOUND_S, lambda: _lacks(chaos, broken, files))
        if ahead:  # the ready one goes to the end of the queue
            chaos.stop_scheduler(other)
            chaos.start_scheduler(other)
            chaos.whole(unready=1)
        before = chaos.leader()
        assert number_of(before) == leader
        killed_at = chaos.kill_scheduler(leader)
        successor = _watched(chaos, broken, above=before["epoch"])
        ready_led_s = seconds_after(killed_at, successor["recovered_at"])
        middle = chaos.log()[-1].zxid
        killed_at = chaos.kill_scheduler(other)
    healed = chaos.leader(above=successor["epoch"])
    assert number_of(healed) == broken
    until("it to be complete", _BOUND_S, lambda: _is_complete(chaos, broken))
    return Trial(
        number=number,
        broken=f"scheduler-{broken}",
        policy=policy,
        queued_ahead=ahead,
        abdications=_abdications(chaos, broken, begin, middle),
        led_too_early=sum(
            each.id == f"scheduler-{broken}" for each in chaos.ledger().named if begin < each.zxid <= middle
        ),
        ready_led_s=ready_led_s,
        healed_led_s=seconds_after(killed_at, healed["recovered_at"]),
        synced_first=_was_complete_when_named(chaos, broken, middle),
    )


@thorough
def test_scheduler_with_an_empty_disk_abdicates_until_it_is_ready(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(POLICY, "strict")
    with cluster(tmp_path / "stack", schedulers=1) as chaos:
        chaos.stop_scheduler(1)
        packs = sorted(_packs(chaos, 1).rglob("*/*"))
        files = set[str]().union(*map(_members, packs))
        shutil.rmtree(chaos.stack.folder / "scheduler-1" / "blobs")
        begin = chaos.log()[-1].zxid
        with _away(_store(chaos), [pack.name for pack in packs]):
            chaos.start_scheduler(1)
            shown = until("role, what is missing and why it abdicated", _BOUND_S, lambda: _syncing(chaos))
            assert _lacks(chaos, 1, files)
            assert chaos.ask("/leader") == {"leader": None}
            raised = [each for each in chaos.ledger().raised if each.zxid > begin]
            assert [each for each in chaos.ledger().named if each.zxid > begin] == []
        restored_at = time.time()
        leader = chaos.leader(above=raised[-1].epoch)
        assert leader["ready"]
    say(
        capsys,
        [
            f"empty disk: role {shown['role']}, missing {[each['path'] for each in shown['missing']]}",
            f"  abdicated: {shown['last_abdication']}",
            f"  led {seconds_after(restored_at, leader['recovered_at']):.1f} s after S3 had the files again",
        ],
    )


def _store(chaos: Cluster) -> S3ObjectStore:
    return object_store(settings_of(chaos.stack.config_file(1)).storage)


def _packs(chaos: Cluster, number: int) -> Path:
    """The folder with the verified packs of a scheduler, which contain its small files."""
    return chaos.stack.folder / f"scheduler-{number}" / "blobs" / "packs"


def _members(pack: Path) -> set[str]:
    """Digests of the files in a pack."""
    data = pack.read_bytes()
    return set(parse_table(len(data), data).sha256s)


@contextmanager
def _away(store: S3ObjectStore, packs: list[str]) -> Iterator[None]:
    """Remove some packs from S3, and put them back at the end."""
    keys = [f"packs/{name}" for name in packs]
    kept = {key: b"".join(store.read(key)) for key in keys}
    for key in keys:
        store.delete(key)
    try:
        yield
    finally:
        for key, data in kept.items():
            store.write(key, data)
        store.close()


def _lacks(chaos: Cluster, number: int, files: set[str]) -> bool:
    shown = chaos.participant(number)
    missing = {file["sha256"] for file in shown.get("missing", [])}
    return bool(shown.get("registered") and not shown["ready"] and missing == files)


def _is_complete(chaos: Cluster, number: int) -> bool:
    shown = chaos.participant(number)
    return bool(shown["ready"] and shown["is_leader"] and not shown["quarantined"])


def _syncing(chaos: Cluster) -> dict[str, Any] | None:
    shown = chaos.participant(1)
    seen = shown.get("role") == "syncing" and shown["missing"] and shown["last_abdication"]
    return shown if seen else None


def _watched(chaos: Cluster, broken: int, *, above: int) -> dict[str, Any]:
    """Wait until the ready one leads, and check all the time whether the incomplete one does."""

    def look() -> dict[str, Any] | None:
        for each in chaos.participants():
            if each["is_leader"]:
                assert number_of(each) != broken, f"{each['id']} leads and is not ready: {each}"
                if each["recovered_at"] and each["epoch"] > above:
                    return each
        return None

    return until("the ready scheduler to lead", _BOUND_S, look)


def _abdications(chaos: Cluster, number: int, begin: int, end: int) -> int:
    """Latches that a scheduler released, in a part of the log: it yielded, or its guard refused."""
    sessions = _sessions(chaos, number, begin)
    return sum(
        operation.kind == "delete" and operation.path.startswith("/nimbus/leader-lock/")
        for each in chaos.log()
        if each.session in sessions and begin < each.zxid <= end
        for operation in each.operations
    )


def _sessions(chaos: Cluster, number: int, begin: int) -> set[int]:
    """Sessions with which a scheduler has registered since then."""
    return {
        each.session
        for each in chaos.log()
        for operation in each.operations
        if each.zxid > begin and operation.path == f"/nimbus/schedulers/scheduler-{number}"
    }


def _was_complete_when_named(chaos: Cluster, number: int, after: int) -> bool:
    """Whether its first registration since it became leader says so. It writes one when it is elected.

    An earlier registration may be older than the guard's answer, which comes from the memory of the syncer.
    """
    named = False
    for each in chaos.log():
        for operation in each.operations:
            if each.zxid > after and operation.path == "/nimbus/leader" and operation.kind == "create":
                named = True
            if named and operation.path == f"/nimbus/schedulers/scheduler-{number}" and operation.data:
                return b'"ready":true' in operation.data
    return False


def _summary(trials: list[Trial]) -> list[str]:
    early, gave_back = sum(each.led_too_early for each in trials), sum(each.abdications for each in trials)
    ahead, synced = sum(each.queued_ahead for each in trials), sum(each.synced_first for each in trials)
    return [
        f"{len(trials)} trials; led while a ready one lived: {early}",
        f"  it stood before the ready one in {ahead}; it took the lock and gave it back {gave_back} times",
        f"  the ready one led after s: {spread([each.ready_led_s for each in trials])}",
        f"  the healed one led after s: {spread([each.healed_led_s for each in trials])}",
        f"  complete when it took over: {synced}; with its pipeline in quarantine: {len(trials) - synced}",
    ]
