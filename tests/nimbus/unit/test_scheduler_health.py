"""A scheduler's report about itself."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from blobsync import Readiness, ReleaseReadiness, ReleaseRef, ReleaseState, SyncProgress
from leader import ElectionStatus, MemberNode, Participant, ParticipantView, Phase, Rank, Verdict
from nimbus.domain.attempts.workers import Refusals
from nimbus.domain.cluster.schedulers import (
    ElectionRole,
    LeaderReport,
    LimitUse,
    SchedulerInfo,
    leader_report,
)
from nimbus.domain.ids import HostId, PipelineName, ReleaseDigest, WorkerId
from nimbus.domain.pipelines.catalog import ReleaseOf
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.wording import REASON_BYTES
from nimbus.engine.loop import EngineStatus
from nimbus.scheduler.health import REFUSING_SHOWN, Identity, SelfReport
from nimbus.scheduler.readiness import ReadinessGuard
from tests.nimbus.definitions import active
from tests.nimbus.dict_cluster import DictCluster

NOTHING_CAME = SyncProgress()
NOW = datetime(2026, 3, 1, tzinfo=UTC)
DIGEST = "a" * 64
REQUIRED = frozenset({ReleaseOf(PipelineName("p"), ReleaseDigest(DIGEST))})
QUEUE = {"a": 0, "b": 2, "c": 0}
"""The value `unready` in the rank of each participant."""


@dataclass
class PlayedElection:
    phase: Phase
    leads: bool = False
    verdict: Verdict | None = None

    def status(self) -> ElectionStatus:
        return ElectionStatus(phase=self.phase, last_verdict=self.verdict)

    def is_leader(self) -> bool:
        return self.leads

    def get_all_participants(self) -> list[ParticipantView]:
        """The leader, one that is not ready, and one that is."""
        members = [MemberNode(Participant(name), 1, Rank(lack, id=name)) for name, lack in QUEUE.items()]
        return [
            ParticipantView(member.participant, place, place == 0, "", 1, member)
            for place, member in enumerate(members)
        ]


class HeldClock:
    def now(self) -> datetime:
        return NOW

    def elapsed_s(self) -> float:
        return 0.0


def found_to_be(state: ReleaseState) -> Readiness:
    ref = ReleaseRef("p", DIGEST)
    return Readiness(releases={ref: ReleaseReadiness(ref=ref, state=state, reason="x")})


def said(folder: Path, phase: Phase, **given: Any) -> SchedulerInfo:
    return reported(folder, phase, **given).info()


def reported(
    folder: Path,
    phase: Phase,
    *,
    leads: bool = False,
    engine: EngineStatus | None = None,
    state: ReleaseState = ReleaseState.READY,
    disk_trouble: str = "",
    store_trouble: str = "",
    progress: SyncProgress = NOTHING_CAME,
    verdict: Verdict | None = None,
    sentinel: bool = False,
    required: frozenset[ReleaseOf] | None = REQUIRED,
    id_taken: str = "",
) -> SelfReport:
    election: Any = PlayedElection(phase, leads, verdict)
    return SelfReport(
        identity=Identity(
            id="s1",
            boot_id="b",
            host=HostId("h"),
            hostname="h",
            address="http://h:1",
            version="1",
            started_at=NOW,
            state_dir=folder,
        ),
        election=election,
        engine_status=lambda: engine or EngineStatus(),
        required=lambda: required,
        readiness=lambda: found_to_be(state),
        progress=lambda: progress,
        store_trouble=lambda: store_trouble,
        has_sentinel=lambda: sentinel,
        id_taken=lambda: id_taken,
        store="zookeeper",
        storage_trouble=lambda: "",
        disk_trouble=lambda: disk_trouble,
        clock=HeldClock(),
    )


@pytest.mark.parametrize(
    ("phase", "state", "role"),
    [
        (Phase.QUEUED, ReleaseState.READY, ElectionRole.QUEUED),
        (Phase.GUARDING, ReleaseState.READY, ElectionRole.VALIDATING),
        (Phase.BACKING_OFF, ReleaseState.SYNCING, ElectionRole.SYNCING),
        (Phase.BACKING_OFF, ReleaseState.READY, ElectionRole.BACKING_OFF),
        (Phase.CLOSED, ReleaseState.READY, ElectionRole.STOPPING),
    ],
)
def test_the_role_says_why_a_scheduler_is_out_of_the_queue(
    tmp_path: Path, phase: Phase, state: ReleaseState, role: ElectionRole
) -> None:
    assert said(tmp_path, phase, state=state).role is role


@pytest.mark.parametrize("runs", [False, True])
def test_registration_says_whether_the_crash_sentinel_runs(tmp_path: Path, runs: bool) -> None:
    assert said(tmp_path, Phase.LATENT, sentinel=runs).has_sentinel is runs


def test_a_leader_recovers_before_it_is_one(tmp_path: Path) -> None:
    began = EngineStatus(epoch=3, leader_since=NOW)
    done = EngineStatus(epoch=3, leader_since=NOW, recovered_at=NOW)

    assert said(tmp_path, Phase.LEADING, leads=True, engine=began).role is ElectionRole.RECOVERING
    assert said(tmp_path, Phase.LEADING, leads=True, engine=done).role is ElectionRole.LEADER


def test_an_engine_in_its_term_is_no_leader_once_leadership_is_not_certain(tmp_path: Path) -> None:
    info = said(tmp_path, Phase.WAITING, leads=False, engine=EngineStatus(epoch=3, leader_since=NOW))

    assert (info.role, info.epoch, info.leader_since) == (ElectionRole.STARTING, None, None)


@pytest.mark.parametrize(("state", "quarantined"), [(ReleaseState.SYNCING, {}), (ReleaseState.ABSENT, {"p"})])
def test_a_leader_quarantines_what_storage_lacks_and_not_what_is_coming(
    tmp_path: Path, state: ReleaseState, quarantined: set[str]
) -> None:
    engine = EngineStatus(epoch=3, leader_since=NOW, recovered_at=NOW)
    info = said(tmp_path, Phase.LEADING, leads=True, engine=engine, state=state)

    assert (info.ready, set(info.quarantined)) == (False, set(quarantined))


@pytest.mark.parametrize("trouble", ["", "No space left on device; make room"])
def test_a_disk_in_trouble_is_told_and_does_not_keep_from_serving(tmp_path: Path, trouble: str) -> None:
    checks = {
        check.name: check for check in reported(tmp_path, Phase.QUEUED, disk_trouble=trouble).readiness()
    }

    disk = checks["disk"]
    assert (disk.ok, disk.detail, disk.required) == (not trouble, trouble, False)


def test_a_disk_that_is_gone_stops_neither_report_nor_checks(tmp_path: Path) -> None:
    report = reported(tmp_path / "unmounted", Phase.QUEUED, disk_trouble="it does not answer")

    assert report.info().disk_free_bytes == 0
    assert [check.name for check in report.readiness() if not check.ok] == ["disk"]


def test_the_leader_names_workers_that_back_off_the_longest_first_up_to_a_limit(tmp_path: Path) -> None:
    many = {
        WorkerId(f"w{number}"): Refusals(1, NOW + timedelta(seconds=number))
        for number in range(REFUSING_SHOWN + 1)
    }
    engine = EngineStatus(epoch=3, leader_since=NOW, recovered_at=NOW, refusals=many)
    told = said(tmp_path, Phase.LEADING, leads=True, engine=engine).refusals

    assert set(told) == many.keys() - {WorkerId("w0")}
    assert told[WorkerId("w1")] == many[WorkerId("w1")]
    assert said(tmp_path, Phase.WAITING, leads=False, engine=engine).refusals == {}


def test_only_the_leader_reports_what_it_has_parked_and_what_of_the_limits_is_in_use(
    tmp_path: Path,
) -> None:
    found = LeaderReport(limits=LimitUse(pools={"db": 2}), parked_count=1)
    engine = EngineStatus(epoch=3, leader_since=NOW, recovered_at=NOW, report=found)

    assert said(tmp_path, Phase.LEADING, leads=True, engine=engine).report == found
    assert said(tmp_path, Phase.WAITING, leads=False, engine=engine).report == LeaderReport()


def test_report_of_the_newest_leader_counts_while_the_former_one_is_still_registered(tmp_path: Path) -> None:
    def leader(epoch: int) -> SchedulerInfo:
        found = LeaderReport(limits=LimitUse(pools={"db": epoch}))
        engine = EngineStatus(epoch=epoch, leader_since=NOW, recovered_at=NOW, report=found)
        return said(tmp_path, Phase.LEADING, leads=True, engine=engine)

    for schedulers in ([leader(3), leader(4)], [leader(4), leader(3)]):
        assert leader_report(schedulers).limits.pools == {"db": 4}
    assert leader_report([said(tmp_path, Phase.WAITING, leads=False)]) == LeaderReport()


@pytest.mark.parametrize(
    ("verdict", "says"),
    [
        (None, ""),
        (Verdict(ready=True), "ready"),
        (Verdict(ready=True, reasons=("p lacks a",), degraded=True), "degraded: p lacks a"),
        (Verdict(ready=False, reasons=("p lacks a", "q lacks b")), "p lacks a; q lacks b"),
    ],
)
def test_scheduler_says_what_its_guard_answered(tmp_path: Path, verdict: Verdict | None, says: str) -> None:
    assert said(tmp_path, Phase.QUEUED, verdict=verdict).guard_said == says


def test_queue_marks_the_one_that_would_lead_by_the_rule_of_the_election(tmp_path: Path) -> None:
    places = reported(tmp_path, Phase.LEADING).participants()

    assert [(place.id, place.is_leader, place.is_next) for place in places] == [
        ("a", True, False),
        ("b", False, False),
        ("c", False, True),
    ]


@pytest.mark.parametrize("state", ReleaseState)
def test_registration_and_guard_agree_whether_it_is_ready_and_why_not(
    tmp_path: Path, state: ReleaseState
) -> None:
    cluster = DictCluster()
    spec = PipelineSpec(name=PipelineName("p"))
    digest = ReleaseDigest(DIGEST)
    cluster.put(active(spec, published=digest, release=digest, updated_at=NOW))
    guard = ReadinessGuard(
        reader=cluster.reader(),
        readiness=lambda: found_to_be(state),
        strict=True,
        on_lacking=lambda _lacks: None,
    )
    info, verdict = said(tmp_path, Phase.QUEUED, state=state), guard()

    assert (info.ready, info.lacks) == (verdict.ready, "" if verdict.ready else verdict.why())


@pytest.mark.parametrize(
    ("state", "cause"),
    [
        (ReleaseState.ABSENT, "p: absent: x"),
        (ReleaseState.UNAVAILABLE, "p: unavailable: x"),
        (ReleaseState.READY, ""),
    ],
)
def test_check_of_artifacts_names_the_cause_also_if_no_missing_file_is_known(
    tmp_path: Path, state: ReleaseState, cause: str
) -> None:
    """A release whose manifest cannot be read has no known files."""
    checks = {check.name: check.detail for check in reported(tmp_path, Phase.QUEUED, state=state).readiness()}

    assert checks["artifacts"] == cause


def test_scheduler_that_has_not_read_the_catalog_is_not_ready_and_says_so(tmp_path: Path) -> None:
    info = said(tmp_path, Phase.QUEUED, required=None)

    assert (info.ready, info.lacks) == (False, "the catalog was not read yet")


def test_reason_of_a_registration_is_bounded(tmp_path: Path) -> None:
    """The guard's reasons may be thousands, and a registration is one node."""
    many = frozenset(ReleaseOf(PipelineName(f"p{n}"), ReleaseDigest(DIGEST)) for n in range(5_000))

    assert len(said(tmp_path, Phase.QUEUED, required=many).lacks) <= REASON_BYTES


@pytest.mark.parametrize("trouble", ["", "state.db: database or disk is full"])
def test_scheduler_is_not_ready_while_its_state_cannot_be_written(tmp_path: Path, trouble: str) -> None:
    store, *_ = reported(tmp_path, Phase.QUEUED, store_trouble=trouble).readiness()

    assert (store.name, store.required, store.ok, store.detail) == ("zookeeper", True, not trouble, trouble)


def test_scheduler_whose_id_another_one_has_is_not_ready_and_says_why(tmp_path: Path) -> None:
    report = reported(tmp_path, Phase.LATENT, id_taken="in use on h2")

    assert (report.info().ready, report.info().lacks) == (False, "in use on h2")
    bad = [check for check in report.readiness() if not check.ok]
    assert [(check.name, check.detail, check.required) for check in bad] == [
        ("registration", "in use on h2", False)
    ]
