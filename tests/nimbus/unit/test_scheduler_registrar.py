"""The registrar: its reports, its notifications, and outages."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from nimbus import records
from nimbus.adapters.store.calls import LARGEST_REQUEST
from nimbus.domain.attempts.workers import WorkerInfo
from nimbus.domain.cluster.schedulers import ElectionRole, SchedulerInfo, clocks_differ_s
from nimbus.domain.ids import HostId, PipelineName, WorkerId
from nimbus.ports import SchedulerIdInUseError, StoreUnavailableError
from nimbus.scheduler import registrar
from nimbus.scheduler.registrar import Registrar
from nimbus.telemetry.daemon import ReadinessMetrics

Eventually = Callable[..., None]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
INFO = SchedulerInfo(
    id="s1",
    boot_id="b",
    host=HostId("h"),
    hostname="h",
    address="http://h:1",
    pid=1,
    version="1",
    started_at=NOW,
    reported_at=NOW,
    role=ElectionRole.QUEUED,
)
LEADER = replace(INFO, role=ElectionRole.LEADER, epoch=3)


class Board:
    """Registrations, and all receivers of the registrar's notifications."""

    def __init__(self) -> None:
        self.info = INFO
        self.down = self.in_use = False
        self.store_time: datetime | None = None
        self.published: list[SchedulerInfo] = []
        self.withdrawn = self.refused = 0
        self.readiness: list[SchedulerInfo] = []
        self.quarantines: list[Mapping[PipelineName, str]] = []
        self.stood: list[bool] = []
        self.refuses_to_stand = False
        self.registrar = Registrar(
            registrations=self,
            info=self.report,
            publish_readiness=self.readiness.append,
            quarantine=self.quarantines.append,
            stand=self.stand,
            metrics=ReadinessMetrics(CollectorRegistry()),
        )

    def report(self) -> SchedulerInfo:
        return self.info

    def stand(self, stands: bool) -> None:
        if self.refuses_to_stand:
            self.refuses_to_stand = False
            raise RuntimeError("the election is busy")
        self.stood.append(stands)

    def publish_scheduler(self, info: SchedulerInfo) -> datetime | None:
        if self.down:
            self.refused += 1
            raise StoreUnavailableError("down")
        if self.in_use:
            raise SchedulerIdInUseError(info.id, "two")
        self.published.append(info)
        return self.store_time

    def publish_worker(self, info: WorkerInfo) -> datetime | None:
        raise NotImplementedError

    def data_mark(self, mark: str) -> str:
        raise NotImplementedError

    def withdraw(self) -> None:
        self.withdrawn += 1

    def now(self, **changes: object) -> int:
        """Change the report. Returns the number of reports until then."""
        self.info = replace(self.info, **changes)  # type: ignore[arg-type]  # a test's own words
        seen = len(self.published)
        self.registrar.wake()
        return seen


@pytest.fixture
def board(monkeypatch: pytest.MonkeyPatch) -> Iterator[Board]:
    monkeypatch.setattr(registrar, "REPORT_EVERY_S", 0.02)
    board = Board()
    board.registrar.start()
    yield board
    board.registrar.stop(timedelta(seconds=30))


def test_it_publishes_again_and_again_and_withdraws_at_the_end(board: Board, eventually: Eventually) -> None:
    eventually(lambda: len(board.published) > 2, what="it reports without a change")
    board.registrar.draining()
    eventually(lambda: board.published[-1].role is ElectionRole.STOPPING)
    board.registrar.stop(timedelta(seconds=30))

    assert board.withdrawn == 1


def test_registration_says_how_far_the_clock_is_ahead_of_the_stores(
    board: Board, eventually: Eventually
) -> None:
    eventually(lambda: board.published and board.published[-1].clock_ahead_s is None)
    board.store_time = NOW - timedelta(seconds=900)

    eventually(lambda: board.published[-1].clock_ahead_s == 900)


def test_while_the_id_is_in_use_it_logs_that_leaves_the_queue_and_tries_again(
    board: Board, eventually: Eventually
) -> None:
    with capture_logs() as logs:
        board.in_use = True
        eventually(lambda: any(line["event"] == "scheduler_id_in_use" for line in logs))
    assert board.stood == [False]
    assert board.registrar.id_taken.startswith("scheduler id 's1' is in use by a live scheduler on two")
    board.in_use = False
    seen = len(board.published)

    eventually(lambda: len(board.published) > seen)
    eventually(lambda: board.stood == [False, True], what="it queues again")
    assert board.registrar.id_taken == ""


def test_first_report_says_at_once_whether_the_id_is_taken() -> None:
    board = Board()
    board.in_use = True

    board.registrar.report_once()

    assert board.registrar.id_taken and board.stood == [False]


def test_first_report_without_the_store_is_left_to_the_next_one() -> None:
    board = Board()
    board.down = True

    board.registrar.report_once()

    assert (board.refused, board.registrar.id_taken, board.stood) == (1, "", [])


def test_a_queue_that_could_not_be_left_is_left_with_the_next_report(
    board: Board, eventually: Eventually
) -> None:
    board.refuses_to_stand = board.in_use = True

    eventually(lambda: board.stood == [False])


def test_scheduler_that_stops_does_not_queue_again(board: Board, eventually: Eventually) -> None:
    board.in_use = True
    eventually(lambda: board.stood == [False])
    board.registrar.draining()
    board.in_use = False

    eventually(lambda: board.published and board.registrar.id_taken == "")

    assert board.stood == [False]


def test_the_election_is_told_of_each_change_of_readiness_once(board: Board, eventually: Eventually) -> None:
    eventually(lambda: board.published)
    seen = board.now(ready=True)
    eventually(lambda: len(board.published) > seen + 2)

    assert [info.ready for info in board.readiness] == [False, True]


def test_election_is_told_when_only_the_reason_has_changed(board: Board, eventually: Eventually) -> None:
    """Otherwise the card would say for ever why the scheduler was not ready at its start."""
    board.now(lacks="the catalog was not read yet")
    eventually(lambda: board.readiness and board.readiness[-1].lacks)
    seen = board.now(lacks="p: absent: no such release")
    eventually(lambda: len(board.published) > seen + 1)

    assert board.readiness[-1].lacks == "p: absent: no such release"


def test_a_new_leader_tells_what_it_cannot_run_even_if_that_is_nothing(
    board: Board, eventually: Eventually
) -> None:
    """A forced takeover quarantines incomplete pipelines; the leader must report when they are complete."""
    eventually(lambda: board.published)
    assert board.quarantines == [], "who does not lead has nothing to say"
    board.info = LEADER
    eventually(lambda: board.quarantines == [{}])
    seen = board.now(quarantined={"p": "x.py is nowhere"})
    eventually(lambda: len(board.published) > seen + 2)
    board.now(quarantined={})
    eventually(lambda: len(board.quarantines) == 3)
    board.info = replace(LEADER, epoch=4)
    eventually(lambda: len(board.quarantines) == 4)

    assert board.quarantines == [{}, {"p": "x.py is nowhere"}, {}, {}]


def test_what_the_guard_of_the_next_term_finds_is_not_replaced_by_a_report_between_the_terms(
    board: Board, eventually: Eventually
) -> None:
    board.info = replace(LEADER, quarantined={"p": "x.py is nowhere"})
    eventually(lambda: board.quarantines == [{"p": "x.py is nowhere"}])
    board.info = INFO
    eventually(lambda: board.published[-1].epoch is None)
    seen = board.now()
    eventually(lambda: len(board.published) > seen + 2)

    assert board.quarantines == [{"p": "x.py is nowhere"}]


def test_quarantine_of_very_many_pipelines_is_told_whole_and_shown_in_part(
    board: Board, eventually: Eventually
) -> None:
    """The registration is one node of ZooKeeper. If it were too large, it would never be written again."""
    everything = {f"pipeline-{number}": "absent: " + "é" * 5_000 for number in range(5_000)}
    board.info = replace(LEADER, quarantined=everything)
    eventually(lambda: board.quarantines == [everything])
    eventually(lambda: board.published[-1].epoch == LEADER.epoch)

    shown = board.published[-1]
    assert len(shown.quarantined) == registrar.QUARANTINED_SHOWN
    assert len(records.SCHEDULER.encode(shown)) < LARGEST_REQUEST / 2


def test_an_outage_ends_nothing_and_the_next_report_goes_through(
    board: Board, eventually: Eventually
) -> None:
    eventually(lambda: board.published)
    board.down = True
    seen = board.now(ready=True)
    eventually(lambda: board.refused > 2)
    assert [info.ready for info in board.readiness] == [False, True], "the election needs no registration"

    board.down = False
    eventually(lambda: len(board.published) > seen)
    assert board.published[-1].ready


def test_difference_of_clocks_is_that_of_the_first_and_the_last() -> None:
    one, other, unknown = (replace(INFO, clock_ahead_s=ahead) for ahead in (-1.5, 2.0, None))

    worker = WorkerInfo(
        id=WorkerId("w1"), host=HostId("h"), hostname="h", pid=1, slots=1, version="1", started_at=NOW,
        clock_ahead_s=-4.0, reported_at=NOW,
    )  # fmt: skip

    assert clocks_differ_s([one, unknown, other]) == 3.5
    assert clocks_differ_s([one, unknown, other, worker]) == 6
    assert clocks_differ_s([unknown, other]) == 0
    assert clocks_differ_s([]) == 0
