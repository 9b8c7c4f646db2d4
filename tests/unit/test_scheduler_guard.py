"""The guard: it reads the catalog itself, counts the time without a leader, and says what is quarantined."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest

from blobsync import Readiness, ReleaseReadiness, ReleaseRef, ReleaseState
from leader import Verdict
from nimbus.adapters.memory import MemoryCluster
from nimbus.domain.catalog import PipelineState
from nimbus.domain.ids import HostId, PipelineName, ReleaseDigest
from nimbus.domain.pipeline import PipelineSpec
from nimbus.domain.schedulers import Role, SchedulerInfo
from nimbus.engine.readiness import GatePolicy
from nimbus.ports import StoreUnavailableError
from nimbus.scheduler.guard import ReadinessGuard
from tests.definitions import active

NOW = datetime(2026, 3, 1, tzinfo=UTC)
DIGEST = ReleaseDigest("a" * 64)
SPEC = PipelineSpec(name=PipelineName("p"))
RECORD = active(SPEC, published=DIGEST, release=DIGEST, updated_at=NOW)
ME = SchedulerInfo(
    id="s1",
    boot_id="b",
    host=HostId("h"),
    hostname="h",
    address="http://h:1",
    pid=1,
    version="1",
    started_at=NOW,
    reported_at=NOW,
    role=Role.QUEUED,
    ready=True,
)


class Bench:
    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.cluster.put(RECORD, ME)
        self.state = ReleaseState.READY
        self.elapsed = 100.0
        self.quarantines: list[Mapping[PipelineName, str]] = []
        self.guard = ReadinessGuard(
            me="s1",
            reader=self.cluster,
            readiness=self.readiness,
            policy=GatePolicy.PER_PIPELINE,
            forced_takeover_after=timedelta(seconds=60),
            clock=self,
            on_quarantine=self.quarantines.append,
        )

    def readiness(self) -> Readiness:
        found = ReleaseReadiness(ref=ReleaseRef("p", DIGEST), state=self.state)
        return Readiness(releases={found.ref: found})

    def now(self) -> datetime:
        return NOW

    def elapsed_s(self) -> float:
        return self.elapsed


@pytest.fixture
def bench() -> Bench:
    return Bench()


def test_who_has_everything_leads_and_nothing_is_quarantined(bench: Bench) -> None:
    assert bench.guard() == Verdict(True)
    assert bench.quarantines == [{}], "what an earlier term quarantined is over"


def test_who_lacks_something_does_not_lead_and_quarantines_nothing(bench: Bench) -> None:
    bench.state = ReleaseState.SYNCING

    verdict = bench.guard()
    assert not verdict.ready
    assert verdict.reasons == ("p: syncing: not complete on this disk",)
    assert bench.quarantines == []


def test_what_was_taken_out_of_the_catalog_is_no_lack(bench: Bench) -> None:
    bench.state = ReleaseState.ABSENT
    bench.cluster.put(replace(RECORD, state=PipelineState.INACTIVE, release=None))

    assert bench.guard() == Verdict(True)


def test_a_ready_peer_bars_who_lacks_something_and_we_are_no_peer_of_ours(bench: Bench) -> None:
    bench.state = ReleaseState.ABSENT
    assert bench.guard().ready
    assert set(bench.quarantines[-1]) == {"p"}

    bench.cluster.put(replace(ME, id="s2", ready=False))
    assert bench.guard().ready
    bench.cluster.put(replace(ME, id="s2", ready=True))
    assert not bench.guard().ready


def test_only_time_without_a_leader_counts_towards_a_forced_takeover(bench: Bench) -> None:
    bench.state = ReleaseState.UNAVAILABLE
    bench.elapsed += 59
    assert not bench.guard().ready
    bench.guard.leader_seen()
    bench.elapsed += 59
    assert not bench.guard().ready
    bench.elapsed += 1
    assert bench.guard().ready
    assert set(bench.quarantines[-1]) == {"p"}


def test_a_guard_that_cannot_read_raises_which_the_election_takes_for_no(bench: Bench) -> None:
    bench.cluster.set_down(True)

    with pytest.raises(StoreUnavailableError):
        bench.guard()
    assert bench.quarantines == []
