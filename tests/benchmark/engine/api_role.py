"""The process of the API: the real application over HTTP on loopback, with the real ZooKeeper reader."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from prometheus_client import CollectorRegistry

from blobsync.testing.memory import MemoryObjectStore
from leader import ZooKeeperConfig, ZooKeeperSession
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.cluster import TreeClusterReader, TreeCommandQueue
from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.api.services import ApiServices, ConfirmedLeader, QueuePlace, ReadinessCheck
from nimbus.bootstrap.resources import SystemClock
from nimbus.domain.cluster.schedulers import ElectionRole, SchedulerInfo
from nimbus.domain.ids import HostId
from nimbus.telemetry.logging import configure
from tests.nimbus.dict_cluster import DictCluster

LONG = timedelta(seconds=30)


class _Health:
    """A fake scheduler that leads. It is not measured."""

    def readiness(self) -> Sequence[ReadinessCheck]:
        return ()

    def info(self) -> SchedulerInfo:
        now = datetime.now(UTC)
        return SchedulerInfo(
            id="bench", boot_id="bench", host=HostId("bench"), hostname="bench", address="http://127.0.0.1:1",
            pid=os.getpid(), version="1", started_at=now, reported_at=now, role=ElectionRole.LEADER,
        )  # fmt: skip

    def participants(self) -> Sequence[QueuePlace]:
        return ()

    def schema(self) -> int | None:
        return None

    def leader(self) -> ConfirmedLeader | None:
        return ConfirmedLeader(id="bench", address="http://127.0.0.1:1", epoch=1)


class ApiRole:
    """See the module."""

    def __init__(self, hosts: str, root: str) -> None:
        configure(stream=sys.stderr)
        self._session = ZooKeeperSession(ZooKeeperConfig(hosts=hosts, session_timeout=timedelta(seconds=60)))
        self._session.start(LONG)
        unused: Any = None
        bucket = MemoryObjectStore()
        services = ApiServices(
            reader=TreeClusterReader(calls_on(self._session), root),
            commands=TreeCommandQueue(calls_on(self._session), root),
            history=S3History(bucket),
            logs=S3LogArchive(bucket),
            health=_Health(),
            metrics=CollectorRegistry(),
            clock=SystemClock(),
            changes=DictCluster().changes(),
            definitions=unused,
            releases=unused,
        )
        self._server = ApiServer(create_app(services))
        self._server.start()

    def url(self) -> str:
        """Its URL."""
        return self._server.url

    def close(self) -> None:
        """Stop serving."""
        self._server.stop()
        self._session.close(LONG)
