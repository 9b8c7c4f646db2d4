"""Collections of garbage by elected leaders: a real ZooKeeper, a real S3 server; the test sets the time."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from prometheus_client import CollectorRegistry

from blobsync import (
    CollectionReport,
    ReleaseRef,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    Secret,
    collect,
    collect_garbage,
    fetch_manifest,
    list_releases,
    publish,
)
from leader import (
    ElectionConfig,
    LeaderLockQueue,
    Leadership,
    Participant,
    Verdict,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeWholeState
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.bootstrap.resources import SystemClock
from nimbus.config.sections import ArtifactsSection
from nimbus.domain.ids import PipelineName, ReleaseDigest
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.writes import CreatePipeline
from nimbus.localstack.s3 import S3Server
from nimbus.localstack.zookeeper import ZooKeeperServer
from nimbus.records import UnreadableRecordError
from nimbus.scheduler import collector as collector_module
from nimbus.scheduler.collector import Collector
from nimbus.scheduler.garbage import BucketGarbage, live_releases
from nimbus.telemetry.daemon import GarbageMetrics
from tests.blobsync.travelled_store import TravelledStore
from tests.nimbus.definitions import active
from tests.nimbus.leader_writes import commit
from tests.nimbus.loading import loaded

Eventually = Callable[..., None]
DAY = timedelta(days=1)
LONG = timedelta(seconds=30)
ARTIFACTS = ArtifactsSection(gc=True, gc_keep_age=DAY, gc_keep_newest=0, gc_max_share=1.0)


class Member:
    """One scheduler's election and collector. Only one member collects at a time."""

    def __init__(self, hosts: str, root: str, name: str, store: TravelledStore, turn: threading.Lock) -> None:
        self.name, self.root, self.turn = name, root, turn
        self.reports: list[CollectionReport] = []
        self.leadership: Leadership | None = None
        self.session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=timedelta(seconds=10)))
        self.session.start(LONG)
        self.state = TreeWholeState(calls_on(self.session), root)
        self.queue = LeaderLockQueue(
            session=self.session,
            config=ElectionConfig(root=root),
            participant=Participant(name, "127.0.0.1", 1, uuid.uuid4().hex),
            guard=lambda: Verdict(True),
            electable=self,
        )
        garbage = BucketGarbage(
            store=store,
            state=self.state,
            leads=self.queue.is_leader,
            artifacts=ARTIFACTS,
            retry=RetryPolicy(),
            metrics=GarbageMetrics(CollectorRegistry()),
            collect=partial(self._collect, store),
        )
        self.collector = Collector(SystemClock(), first_delay=timedelta(0))
        self.collector.add(garbage.collect, timedelta(milliseconds=50), self.queue.is_leader)

    def _collect(self, travelled: TravelledStore, *given: Any, **named: Any) -> CollectionReport:
        with self.turn:
            self.reports.append(collect_garbage(*given, **named, clock=travelled.now))
            return self.reports[-1]

    def elected(self, leadership: Leadership) -> None:
        self.leadership = leadership

    def revoked(self, leadership: Leadership, reason: str) -> None:
        self.leadership = None

    def start(self) -> None:
        self.queue.add_to_leader_lock_queue()
        self.collector.start()

    def know(self, ref: ReleaseRef) -> None:
        """Write an active pipeline to the catalog, as this leader."""
        assert self.leadership is not None
        spec, digest = PipelineSpec(name=PipelineName(ref.name)), ReleaseDigest(ref.digest)
        record = active(spec, published=digest, release=digest, updated_at=datetime.now(UTC))
        store = TreeLeaderStore(calls_on(self.session), self.root, self.leadership.token)
        loaded(store)
        commit(store, [CreatePipeline(record)])

    def stop(self) -> None:
        self.collector.stop_soon()
        self.queue.close(LONG)
        self.collector.stop(LONG)
        self.session.close(LONG)


@pytest.fixture
def store(s3_server: S3Server, s3_bucket: str) -> Iterator[TravelledStore]:
    s3 = S3ObjectStore(
        S3Config(
            endpoint_url=s3_server.endpoint_url,
            bucket=s3_bucket,
            access_key_id=s3_server.access_key,
            secret_access_key=Secret(s3_server.secret_key),
        )
    )
    yield TravelledStore(s3)
    s3.close()


@pytest.fixture
def turn() -> threading.Lock:
    """Lock that is held during a collection, and while a test advances the time."""
    return threading.Lock()


@pytest.fixture
def members(
    zookeeper: ZooKeeperServer,
    zk_root: str,
    store: TravelledStore,
    turn: threading.Lock,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Callable[[str], Member]]:
    monkeypatch.setattr(collector_module, "ASK_EVERY_S", 0.05)
    made: list[Member] = []

    def make(name: str) -> Member:
        made.append(Member(zookeeper.hosts, zk_root, name, store, turn))
        return made[-1]

    yield make
    for member in made:
        member.stop()


def release(store: TravelledStore, folder: Path, text: str) -> ReleaseRef:
    folder.mkdir(exist_ok=True)
    (folder / "file").write_text(text)
    return ReleaseRef("p", publish(store, name="p", files=collect(folder, include=["*"])).digest)


def test_leader_collects_the_old_release_and_followers_do_not_until_they_lead(
    members: Callable[[str], Member],
    store: TravelledStore,
    turn: threading.Lock,
    tmp_path: Path,
    eventually: Eventually,
) -> None:
    def visible() -> set[ReleaseRef]:
        return {ReleaseRef("p", digest) for digest in list_releases(store, "p")}

    def passes(time: timedelta, member: Member) -> None:
        """Advance the time, then let that leader collect."""
        with turn:
            store.passed += time
            before = len(member.reports)
        eventually(lambda: len(member.reports) > before, what=f"a collection by {member.name}")

    old, new = release(store, tmp_path / "p", "old"), release(store, tmp_path / "p", "new")
    first, second = members("first"), members("second")
    first.start()
    eventually(lambda: first.leadership is not None)
    second.start()
    first.know(new)

    passes(2 * DAY, first)
    assert visible() == {old, new}
    passes(DAY + timedelta(minutes=1), first)

    eventually(lambda: visible() == {new}, what="the old release is gone")
    assert fetch_manifest(store, "p", new.digest).ref == new
    assert second.reports == []

    another = release(store, tmp_path / "p", "another")
    first.queue.abdicate("the other one is to lead")
    eventually(lambda: second.leadership is not None)
    passes(2 * DAY, second)
    assert visible() == {new, another}
    passes(DAY + timedelta(minutes=1), second)
    eventually(lambda: visible() == {new}, what=f"{another} is gone, too")


def test_record_that_this_version_cannot_read_is_not_passed_over(
    members: Callable[[str], Member], zookeeper: ZooKeeperServer, zk_root: str
) -> None:
    """The cluster's reader reports and skips such a record. A collection must not skip it."""
    client = KazooClient(zookeeper.hosts)
    client.start(timeout=30)
    try:
        client.create(f"{zk_root}/pipelines/p", b'{"schema": 999}', makepath=True)
    finally:
        client.stop()
        client.close()

    with pytest.raises(UnreadableRecordError, match="pipelines/p"):
        live_releases(members("any").state)
