"""Registrations: on the shipped fake and on ZooKeeper, and cases that only sessions have."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus import records
from nimbus.adapters.sqlite.session import SqliteSession
from nimbus.adapters.store.calls import Calls, calls_on
from nimbus.adapters.store.cluster import TreeAccess, TreeClusterReader, TreeRegistrations
from nimbus.adapters.store.paths import Paths
from nimbus.api.services import QueuePlace
from nimbus.api.views import participants_model
from nimbus.domain.attempts.workers import Refusals, WorkerInfo
from nimbus.domain.cluster.access import AccessRole, Token
from nimbus.domain.cluster.schedulers import ElectionRole, SchedulerInfo
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.ids import HostId, WorkerId
from nimbus.localstack.zookeeper import ZooKeeperServer
from nimbus.ports import Registrations, SchedulerIdInUseError, WorkerIdInUseError
from tests.nimbus.worker_bench import RecordingRegistrations

Eventually = Callable[..., None]
NOW = datetime(2026, 3, 1, tzinfo=UTC)
LONG = timedelta(seconds=60)
WORKER = WorkerInfo(
    id=WorkerId("w1"),
    host=HostId("h"),
    hostname="one",
    pid=1,
    slots=1,
    version="1",
    started_at=NOW,
    targets={"big": 8},
    submits=("big",),
    orders_in_clusters=3,
    reported_at=NOW,
)
SCHEDULER = SchedulerInfo(
    id="s1",
    boot_id="b",
    host=HostId("h"),
    hostname="one",
    address="http://h:1",
    pid=1,
    version="1",
    started_at=NOW,
    reported_at=NOW,
    role=ElectionRole.QUEUED,
)


class SqliteSessions:
    """Sessions with one store in SQLite. All are closed at the end."""

    def __init__(self, folder: Path) -> None:
        self._file = folder / "state.db"
        self.made: list[SqliteSession] = []

    def new(self) -> SqliteSession:
        session = SqliteSession(self._file)
        session.start()
        self.made.append(session)
        return session


class Sessions:
    """ZooKeeper sessions. All are closed at the end."""

    def __init__(self, hosts: str) -> None:
        self._config = ZooKeeperConfig(hosts=hosts, session_timeout=timedelta(seconds=10))
        self.made: list[ZooKeeperSession] = []

    def new(self) -> ZooKeeperSession:
        session = ZooKeeperSession(self._config)
        session.start(timedelta(seconds=30))
        self.made.append(session)
        return session


@pytest.fixture
def sessions(zookeeper: ZooKeeperServer) -> Iterator[Sessions]:
    sessions = Sessions(zookeeper.hosts)
    yield sessions
    for session in sessions.made:
        session.close(LONG)


@pytest.fixture
def sqlite_sessions(tmp_path: Path) -> Iterator[SqliteSessions]:
    sessions = SqliteSessions(tmp_path)
    yield sessions
    for session in sessions.made:
        session.close(LONG)


def _sessions(request: pytest.FixtureRequest) -> Sessions | SqliteSessions:
    name = "sessions" if request.param == "zookeeper" else "sqlite_sessions"
    found: Sessions | SqliteSessions = request.getfixturevalue(name)
    return found


@pytest.fixture(params=["sqlite", "zookeeper"])
def any_sessions(request: pytest.FixtureRequest) -> Sessions | SqliteSessions:
    return _sessions(request)


@dataclass
class Bench:
    registrations: Registrations
    workers: Callable[[], tuple[WorkerInfo, ...]]
    schedulers: Callable[[], tuple[SchedulerInfo, ...]]


@pytest.fixture(params=["memory", "sqlite", "zookeeper"])
def bench(request: pytest.FixtureRequest) -> Bench:
    if request.param == "memory":
        memory = RecordingRegistrations()
        return Bench(memory, lambda: tuple(memory.workers[-1:]), lambda: tuple(memory.schedulers[-1:]))
    root: str = request.getfixturevalue("zk_root")
    session = _sessions(request).new()
    reader = TreeClusterReader(calls_on(session), root)
    return Bench(TreeRegistrations(calls_on(session), root), reader.workers, reader.schedulers)


def test_what_was_published_last_stands_until_it_is_withdrawn(bench: Bench) -> None:
    draining, leader = replace(WORKER, draining=True), replace(SCHEDULER, role=ElectionRole.LEADER, epoch=4)
    bench.registrations.publish_worker(WORKER)
    bench.registrations.publish_scheduler(SCHEDULER)
    bench.registrations.publish_worker(draining)
    bench.registrations.publish_scheduler(leader)
    assert (bench.workers(), bench.schedulers()) == ((draining,), (leader,))

    bench.registrations.withdraw()
    assert (bench.workers(), bench.schedulers()) == ((), ())
    bench.registrations.withdraw()
    bench.registrations.publish_worker(WORKER)
    assert bench.workers() == (WORKER,)


def test_the_first_mark_of_the_folder_of_outputs_stands(bench: Bench) -> None:
    assert bench.registrations.data_mark("") == ""
    assert bench.registrations.data_mark("first") == "first"
    assert bench.registrations.data_mark("second") == "first"
    assert bench.registrations.data_mark("") == "first"


def test_a_registration_goes_with_its_session_and_comes_again_on_a_new_one(
    sessions: Sessions, zk_root: str, eventually: Eventually
) -> None:
    watcher = TreeClusterReader(calls_on(sessions.new()), zk_root)
    session = sessions.new()
    registrations = TreeRegistrations(calls_on(session), zk_root)
    registrations.publish_worker(WORKER)
    registrations.publish_scheduler(SCHEDULER)
    before = session.session_id
    expire(session)
    eventually(lambda: session.is_connected and session.session_id not in (None, before))
    eventually(lambda: watcher.workers() == (), what="the registration ends with the session")

    registrations.publish_worker(WORKER)
    registrations.publish_scheduler(SCHEDULER)
    assert (watcher.workers(), watcher.schedulers()) == ((WORKER,), (SCHEDULER,))
    session.close(LONG)
    eventually(lambda: watcher.workers() == () and watcher.schedulers() == ())


def test_what_an_earlier_session_of_ours_left_is_replaced_and_outlives_it(
    any_sessions: Sessions | SqliteSessions, zk_root: str
) -> None:
    """For example after a restart: the previous process is dead, but its session is not over."""
    first, second = any_sessions.new(), any_sessions.new()
    TreeRegistrations(calls_on(first), zk_root).publish_worker(WORKER)
    TreeRegistrations(calls_on(first), zk_root).publish_scheduler(SCHEDULER)
    reborn = TreeRegistrations(calls_on(second), zk_root)
    reborn.publish_worker(replace(WORKER, pid=2))
    reborn.publish_scheduler(replace(SCHEDULER, pid=2))
    first.close(LONG)

    reader = TreeClusterReader(calls_on(second), zk_root)
    assert [worker.pid for worker in reader.workers()] == [2]
    assert [scheduler.pid for scheduler in reader.schedulers()] == [2]


def test_the_write_of_a_registration_has_the_time_of_the_server(
    sessions: Sessions, sqlite_sessions: SqliteSessions, zk_root: str
) -> None:
    before, here = datetime.now(UTC), TreeRegistrations(calls_on(sessions.new()), zk_root)
    single = TreeRegistrations(calls_on(sqlite_sessions.new()), zk_root)

    for at in (here.publish_scheduler(SCHEDULER), here.publish_worker(WORKER)):
        assert at is not None
        now = datetime.now(UTC)
        assert before - timedelta(seconds=1) < at < now + timedelta(seconds=1), "they share a clock"
    assert single.publish_scheduler(SCHEDULER) is None
    assert single.publish_worker(WORKER) is None


DEAD_PID = 1 << 30
"""Larger than any pid."""


def test_a_restarted_scheduler_replaces_the_registration_of_its_dead_process(
    any_sessions: Sessions | SqliteSessions, zk_root: str
) -> None:
    first, second = any_sessions.new(), any_sessions.new()
    TreeRegistrations(calls_on(first), zk_root).publish_scheduler(replace(SCHEDULER, pid=DEAD_PID))
    reborn = replace(SCHEDULER, pid=os.getpid(), boot_id="next")

    TreeRegistrations(calls_on(second), zk_root).publish_scheduler(reborn)

    assert TreeClusterReader(calls_on(first), zk_root).schedulers() == (reborn,)


@pytest.mark.parametrize(
    "first",
    [
        replace(SCHEDULER, host=HostId("other"), hostname="other", pid=DEAD_PID),
        replace(SCHEDULER, pid=os.getppid()),
    ],
    ids=["another host", "the same host"],
)
def test_a_scheduler_id_in_use_by_a_live_process_is_refused_until_it_is_free(
    any_sessions: Sessions | SqliteSessions, zk_root: str, eventually: Eventually, first: SchedulerInfo
) -> None:
    live, session = any_sessions.new(), any_sessions.new()
    TreeRegistrations(calls_on(live), zk_root).publish_scheduler(first)
    registrations = TreeRegistrations(calls_on(session), zk_root)
    second = replace(SCHEDULER, pid=os.getpid(), boot_id="second")
    reader = TreeClusterReader(calls_on(session), zk_root)

    with pytest.raises(SchedulerIdInUseError, match=f"a live scheduler on {first.hostname}"):
        registrations.publish_scheduler(second)
    assert reader.schedulers() == (first,)
    registrations.withdraw()
    assert reader.schedulers() == (first,)

    live.close(LONG)
    eventually(lambda: reader.schedulers() == ())
    registrations.publish_scheduler(second)
    assert reader.schedulers() == (second,)


class Overtaken:
    """Calls whose first `create` is overtaken by another process."""

    def __init__(self, calls: Calls, faster: Callable[[], object]) -> None:
        self._calls, self._faster = calls, [faster]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._calls, name)

    def create(self, path: str, data: bytes, *, ephemeral: bool = False) -> Any:
        if ephemeral and self._faster:
            self._faster.pop()()
        return self._calls.create(path, data, ephemeral=ephemeral)


def test_of_two_schedulers_with_one_id_that_register_at_the_same_moment_one_is_refused(
    any_sessions: Sessions | SqliteSessions, zk_root: str
) -> None:
    first = replace(SCHEDULER, host=HostId("other"), hostname="other")
    faster = TreeRegistrations(calls_on(any_sessions.new()), zk_root)
    session = any_sessions.new()
    calls: Any = Overtaken(calls_on(session), lambda: faster.publish_scheduler(first))

    with pytest.raises(SchedulerIdInUseError, match="a live scheduler on other"):
        TreeRegistrations(calls, zk_root).publish_scheduler(replace(SCHEDULER, boot_id="second"))
    assert TreeClusterReader(calls_on(session), zk_root).schedulers() == (first,)


def test_two_live_schedulers_in_containers_replace_each_other_once_at_most(
    any_sessions: Sessions | SqliteSessions, zk_root: str
) -> None:
    """Both are on one host, with one process number each."""
    one, other = (TreeRegistrations(calls_on(any_sessions.new()), zk_root) for _ in range(2))
    one.publish_scheduler(SCHEDULER)
    other.publish_scheduler(replace(SCHEDULER, boot_id="other"))

    with pytest.raises(SchedulerIdInUseError):
        one.publish_scheduler(SCHEDULER)


def test_a_worker_id_in_use_on_another_host_is_refused_until_it_is_free(
    any_sessions: Sessions | SqliteSessions, zk_root: str
) -> None:
    first, second = any_sessions.new(), any_sessions.new()
    standing = TreeRegistrations(calls_on(first), zk_root)
    standing.publish_worker(WORKER)
    elsewhere = replace(WORKER, host=HostId("h2"), hostname="two")
    late = TreeRegistrations(calls_on(second), zk_root)

    with pytest.raises(WorkerIdInUseError, match=r"'w1'.*on one"):
        late.publish_worker(elsewhere)
    assert TreeClusterReader(calls_on(second), zk_root).workers() == (WORKER,)
    standing.withdraw()
    late.publish_worker(elsewhere)
    assert TreeClusterReader(calls_on(second), zk_root).workers() == (elsewhere,)


def test_withdrawing_leaves_what_another_process_has_put_in_our_place(
    any_sessions: Sessions | SqliteSessions, zk_root: str
) -> None:
    first, second = any_sessions.new(), any_sessions.new()
    old = TreeRegistrations(calls_on(first), zk_root)
    old.publish_worker(WORKER)
    TreeRegistrations(calls_on(second), zk_root).publish_worker(replace(WORKER, pid=2))

    old.withdraw()

    assert [worker.pid for worker in TreeClusterReader(calls_on(second), zk_root).workers()] == [2]


def test_a_registration_that_cannot_be_read_is_of_a_live_worker_all_the_same(
    any_sessions: Sessions | SqliteSessions, zk_root: str
) -> None:
    first, second = any_sessions.new(), any_sessions.new()
    registrations = TreeRegistrations(calls_on(second), zk_root)
    registrations.publish_worker(replace(WORKER, id=WorkerId("other")))  # creates the parents
    calls_on(first).create(f"{zk_root}/workers/w1", b"{broken", ephemeral=True)

    with pytest.raises(WorkerIdInUseError, match="cannot be read"):
        registrations.publish_worker(WORKER)
    first.close(LONG)
    registrations.publish_worker(WORKER)

    found = {worker.id for worker in TreeClusterReader(calls_on(second), zk_root).workers()}
    assert found == {"other", "w1"}


def expire(session: ZooKeeperSession) -> None:
    """Let the session expire at the server."""
    from kazoo.client import KazooClient

    twin = KazooClient(hosts=session.config.hosts, client_id=session.client.client_id)
    twin.start(timeout=30)
    twin.stop()
    twin.close()


def test_a_registration_of_an_older_version_names_no_worker_that_backs_off() -> None:
    refused = {WORKER.id: Refusals(3, NOW)}
    told = records.SCHEDULER.encode(replace(SCHEDULER, refusals=refused))
    body = json.loads(told)
    del body["refusals"]

    assert records.SCHEDULER.decode(told, "").refusals == refused
    assert records.SCHEDULER.decode(json.dumps(body).encode(), "").refusals == {}


def test_schedulers_of_two_releases_are_listed_together_during_a_rolling_upgrade(
    any_sessions: Sessions | SqliteSessions, zk_root: str
) -> None:
    """The previous release also wrote its place in the queue, and none of the newer fields."""
    old, new = any_sessions.new(), any_sessions.new()
    TreeRegistrations(calls_on(new), zk_root).publish_scheduler(SCHEDULER)
    body = json.loads(records.SCHEDULER.encode(replace(SCHEDULER, id="old", ready=True)))
    data = json.dumps(body | {"queue_position": 1}).encode()
    calls_on(old).create(Paths(zk_root).scheduler("old"), data, ephemeral=True)

    found = {one.id: one for one in TreeClusterReader(calls_on(new), zk_root).schedulers()}
    place = QueuePlace(id="old", boot_id="b", position=1, is_leader=False)
    rows = {row.id: row for row in participants_model([place], list(found.values()), None).participants}

    assert found == {SCHEDULER.id: SCHEDULER, "old": replace(SCHEDULER, id="old", ready=True)}
    assert (rows["old"].registered, rows["old"].ready, rows["old"].queue_position) == (True, True, 1)
    assert (rows[SCHEDULER.id].registered, rows[SCHEDULER.id].queue_position) == (True, None)


def test_token_is_seen_by_every_scheduler_and_a_change_is_told(
    any_sessions: Sessions | SqliteSessions, zk_root: str, eventually: Eventually
) -> None:
    one, other = (TreeAccess(calls_on(any_sessions.new()), zk_root) for _ in range(2))
    told: list[str] = []
    assert one.settings(lambda: told.append("one")).tokens == {}
    token = Token(id="0" * 12, name="ada", role=AccessRole.ADMIN, sha256="0" * 64, created_at=NOW)
    session = any_sessions.new()
    calls_on(session).set(
        f"{zk_root}/settings", records.SETTINGS.encode(ClusterSettings(tokens={token.id: token}))
    )

    eventually(lambda: told == ["one"])
    for store in (one, other):
        assert store.settings(lambda: None).tokens == {token.id: token}


def test_key_of_sessions_is_made_once(any_sessions: Sessions | SqliteSessions, zk_root: str) -> None:
    one, other = (TreeAccess(calls_on(any_sessions.new()), zk_root) for _ in range(2))

    assert len(one.session_key()) == 32
    assert other.session_key() == one.session_key()
