"""Builds the processes of Nimbus from their settings. The only module that knows every adapter."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import structlog
from prometheus_client import CollectorRegistry

from blobsync import (
    BlobSyncError,
    LocalStore,
    Readiness,
    RetryPolicy,
    S3Config,
    S3ObjectStore,
    StoreAccessDeniedError,
    StoreUnavailableError,
    Syncer,
)
from leader import (
    ElectionConfig,
    LeaderLockQueue,
    Leadership,
    Participant,
    ZooKeeperConfig,
    ZooKeeperSession,
)
from nimbus import __version__
from nimbus.adapters.clock import SystemClock
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.adapters.zookeeper.board import ZooKeeperAttemptBoard
from nimbus.adapters.zookeeper.cluster import (
    ZooKeeperClusterReader,
    ZooKeeperCommandQueue,
    ZooKeeperRegistrations,
)
from nimbus.adapters.zookeeper.leader_store import ZooKeeperLeaderStore
from nimbus.api.app import create_app
from nimbus.api.server import ApiServer
from nimbus.api.services import ApiServices
from nimbus.config import Settings
from nimbus.domain.errors import NimbusError
from nimbus.domain.ids import WorkerId
from nimbus.domain.supervision import Timings
from nimbus.engine.effects import Effects
from nimbus.engine.facts import Policy
from nimbus.engine.loop import Engine
from nimbus.engine.news import QuarantineChanged
from nimbus.engine.readiness import GatePolicy
from nimbus.java import find_java
from nimbus.scheduler.catalog_follower import CatalogFollower
from nimbus.scheduler.guard import ReadinessGuard
from nimbus.scheduler.health import Identity, SelfReport
from nimbus.scheduler.process import run_until_signal
from nimbus.scheduler.registrar import Registrar
from nimbus.scheduler.releases import LocalReleases
from nimbus.scheduler.scheduler import Parts, Scheduler
from nimbus.telemetry.engine import EngineMetrics
from nimbus.telemetry.logging import configure
from nimbus.worker.connections import Connections
from nimbus.worker.identity import host_id, hostname
from nimbus.worker.launcher import launch
from nimbus.worker.settings import WorkerSettings
from nimbus.worker.worker import Worker

_log = structlog.get_logger(__name__)


class StorageRefusedError(NimbusError):
    """S3 answers, and says no: starting would only hide it."""

    code = "storage_refused"
    exit_code = 7
