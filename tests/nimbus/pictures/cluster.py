"""Starts and fills the cluster of the pictures.

Of `shop_daily`, 24 days are in the past: three dates have no run, four runs failed, one was late. The run of
the last fire time is started by the schedule, by a release that has a fault. So is that of `nightly_close`, a
chain of twelve. Three of the thirty scans of `wide_scan` do not end, so that others wait; a load of
`warehouse_load` waits for a pool, a backfill is under way, `stock_forecast` follows a dataset, and a
backfill of `nightly_close` is paused by a failure.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx

from blobsync import S3ObjectStore, publish
from leader import EpochRecord, FencingToken, ZooKeeperConfig, ZooKeeperSession
from leader.protocol.terms import encode_epoch
from nimbus.adapters.s3_history import S3History
from nimbus.adapters.s3_logs import S3LogArchive
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.store.leader_store import TreeLeaderStore
from nimbus.cli.options import object_store
from nimbus.cli.pipeline.sources import read_sources
from nimbus.config import load_settings
from nimbus.definition.cron import fires_between
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.cluster.terms import Adopted, EndCause, Leader, Term, begun, ended
from nimbus.domain.commands import CommandOutcome
from nimbus.domain.ids import CommandId, PipelineName, ReleaseDigest
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, profile_of
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.writes import (
    CreatePipeline,
    CreateRun,
    CreateTerm,
    PutDataset,
    PutIntervals,
    PutSettings,
    Write,
)
from nimbus.localstack.daemons import ROOT, StackTuning
from nimbus.localstack.stack import LocalStack
from tests.nimbus.chaos.cluster import Cluster, until
from tests.nimbus.leader_writes import commit
from tests.nimbus.pictures.past import Day, Past

PIPELINES = Path(__file__).parent / "pipelines"
_DAY, _HOUR = timedelta(days=1), timedelta(hours=1)
_KEPT = timedelta(days=2)
_EPOCH = 3
_OWNERS = {"shop_daily": "shop", "stock_sync": "shop", "stock_forecast": "shop", "nightly_close": "finance"}
_SHOP_S = {
    "orders": 3.0, "customers": 4.0, "stock": 3.5, "clean_orders": 2.5, "join": 3.0, "stock_check": 1.5,
    "archive": 2.0, "report": 3.0, "mail": 0.5,
}  # fmt: skip
MISSING = (13, 12, 11)
"""The fire times of `shop_daily` without a run, counted back from the last one."""
_FAILED = {
    21: {"customers": "ConnectionError: the shop does not answer"},
    17: {"clean_orders": "ValueError: 3 orders have no customer"},
    9: {"stock_check": "ValueError: 2 products have a negative stock: S-00017, S-00130"},
    5: {"report": "OSError: [Errno 28] No space left on device"},
}
_ONCE = {19: "orders", 8: "customers", 3: "report"}
_NEW_RELEASE = 6
"""Fire times from here on have the newer release."""


class FilledStack(LocalStack):
    """A stack whose past is written before its schedulers start."""

    def _start_schedulers(self) -> None:
        _Filling(self).fill()
        super()._start_schedulers()


class _Filling:
    """Writes of a leader, and of those who published, before any scheduler runs."""

    def __init__(self, stack: LocalStack) -> None:
        self.now = datetime.now(UTC)
        self.store: S3ObjectStore = object_store(load_settings(stack.config_file(1), os.environ).storage)
        self.history, self.logs = S3History(self.store), S3LogArchive(self.store)
        self.hosts, self.folder = stack.zookeeper.hosts, stack.folder
        self.writes: list[Write] = []
        self.numbers = count(1)

    def fill(self) -> None:
        """Write everything."""
        self._shop()
        self._others()
        self._terms()
        session = ZooKeeperSession(ZooKeeperConfig(hosts=self.hosts))
        session.start(timedelta(seconds=30))
        try:
            record = encode_epoch(EpochRecord(_EPOCH))
            session.call(session.client.create_async, f"{ROOT}/epoch", record, makepath=True)
            token = FencingToken(path=f"{ROOT}/epoch", version=0, epoch=_EPOCH)
            store = TreeLeaderStore(calls_on(session), ROOT, token)
            for _ in store.load():  # creates the parents of the records
                pass
            for start in range(0, len(self.writes), 20):
                commit(store, self.writes[start : start + 20])
        finally:
            session.close(timedelta(seconds=5))

    def fires(self, spec: PipelineSpec, back: timedelta) -> list[datetime]:
        """The fire times of a pipeline until now, oldest first."""
        assert spec.schedule is not None
        return list(fires_between(spec.schedule, self.now - back, self.now, 1000))

    def _sources(self, name: str) -> Path:
        """A copy of a pipeline whose daily schedule has fired at the last full hour."""
        folder = self.folder / "releases" / name
        shutil.copytree(PIPELINES / name, folder)
        definition, hour = folder / "pipeline.yaml", self.now.hour
        text = definition.read_text().replace('"0 5 * * *"', f'"0 {hour} * * *"')
        definition.write_text(text.replace('"07:00"', f'"{(hour + 2) % 24:02d}:00"'))
        return folder

    def _release(self, folder: Path, name: str) -> tuple[PipelineSpec, ReleaseDigest]:
        spec, files = read_sources(folder)
        return spec, ReleaseDigest(publish(self.store, name=name, files=files, published_by="ada").digest)

    def _pipeline(self, spec: PipelineSpec, release: ReleaseDigest, **changes: Any) -> None:
        record = PipelineRecord(
            name=spec.name,
            state=PipelineState.ACTIVE,
            published=release,
            release=release,
            profile=profile_of(spec),
            owner=_OWNERS.get(spec.name),
            schedule_position=self.now,
            updated_at=self.now - 6 * _DAY,
        )
        self.writes.append(CreatePipeline(replace(record, **changes)))

    def _keep(self, name: PipelineName, *parts: Past) -> None:
        """Store the runs of a pipeline, by release, as its leader left them."""
        whole = Past(parts[0].spec, parts[0].release, {}, runs=[run for part in parts for run in part.runs])
        for part in parts:
            self.logs.append_all(part.logs)
        for run in whole.runs:
            self.history.store(run)
            if run.finished_at is not None and run.finished_at > self.now - _KEPT:
                self.writes.append(CreateRun(run))
        begins = min(run.created_at for run in whole.runs) - 2 * _DAY
        self.writes.append(PutIntervals(name, whole.index(begins), None))
        self.writes += [PutDataset(one, None) for one in whole.datasets()]

    def _shop(self) -> None:
        """Two releases, and the runs of 24 days; the last fire time is left to the schedule."""
        folder = self._sources("shop_daily")
        spec, _ = read_sources(folder)
        fires = self.fires(spec, 25 * _DAY)
        days = [
            Day(
                fire=fire,
                fails=_FAILED.get(ago, {}),
                once=frozenset({_ONCE[ago]} if ago in _ONCE else ()),
                late=timedelta(hours=2, minutes=40) if ago == 15 else timedelta(0),
                slower=1 + max(0, 7 - ago) * 0.09,
            )
            for ago, fire in zip(range(len(fires) - 1, 0, -1), fires, strict=False)
            if ago not in MISSING
        ]
        is_old = [day.fire < fires[-1 - _NEW_RELEASE] for day in days].count(True)
        reading = folder / "tasks/read.py"
        reading.write_text(reading.read_text().replace("2026-11-30", f"{fires[-1]:%Y-%m-%d}"))
        older = self._release(
            _older_shop(shutil.copytree(folder, self.folder / "releases/older")), "shop_daily"
        )
        time.sleep(1.1)  # storage tells whole seconds
        newer = self._release(folder, "shop_daily")
        parts = [Past(*release, _SHOP_S, seed) for seed, release in enumerate((older, newer))]
        parts[0].happened(days[:is_old], self.numbers)
        parts[1].happened(days[is_old:], self.numbers)
        self._keep(spec.name, *parts)
        self._pipeline(*newer, schedule_position=fires[-2], pinned=(older[1],))
        at = fires[-1 - _NEW_RELEASE] - timedelta(minutes=50)
        outcome = CommandOutcome(
            command=CommandId("cmd-0000000001"),
            accepted=True,
            code="ok",
            message=f"release {newer[1][:12]} of shop_daily is published and active",
            decided_at=at,
            epoch=2,
            kind="publish_release",
            pipeline=spec.name,
            names={"release": newer[1]},
            submitted_by="ada",
        )
        self.history.store_outcomes([outcome])

    def _others(self) -> None:
        parts = (("wide_scan", 4, 0), ("nightly_close", 12, 1), ("stock_sync", 1.5, 0), ("price_feed", 5, 0))
        for name, back, leave in parts:
            spec, release = self._release(self._sources(name), name)
            fires = self.fires(spec, back * _DAY)
            fails = (
                {4: {"compare": "ValueError: level of S-00017 differs by 4"}} if name == "stock_sync" else {}
            )
            past = Past(spec, release, {"push": 40.0, "pull": 70.0, "plan": 5.0, "merge": 20.0}, seed=7)
            shown = fires[: len(fires) - leave]
            days = [
                Day(fire=fire, fails=fails.get(ago, {}))
                for ago, fire in zip(range(len(shown), 0, -1), shown, strict=True)
            ]
            past.happened(days, self.numbers)
            self._keep(spec.name, past)
            self._pipeline(spec, release, schedule_position=fires[-1 - leave])
        self._sources("stock_forecast")  # activated by a command, so that it starts by data
        self._pipeline(*self._release(self._sources("warehouse_load"), "warehouse_load"))
        self.writes.append(PutSettings(ClusterSettings(pools={PipelineName("warehouse"): 1})))

    def _terms(self) -> None:
        """Three leaders of the last weeks."""
        before: Term | None = None
        for epoch, days, cause in (
            (1, 20, EndCause.STOPPED),
            (2, 9, EndCause.DIED),
            (3, 2, EndCause.STOPPED),
        ):
            leader = Leader(
                id=f"scheduler-{epoch}", host=f"host-{epoch}", boot_id=f"boot-{epoch}", version="0.1.0"
            )
            term = begun(leader, epoch, before, self.now - days * _DAY)
            adopted = Adopted(runs=epoch, claimed=epoch, unclaimed=0, ended=1, fenced=0)
            term = replace(term, takeover_s=0.2 * epoch, adopted=adopted, decisions=4_000 * epoch)
            until_days = {1: 9, 2: 2, 3: 0}[epoch]
            ends = self.now - until_days * _DAY - timedelta(seconds=4 if epoch < _EPOCH else 20)
            term = ended(term, cause, ends)
            self.writes.append(CreateTerm(term))
            before = term


def _older_shop(folder: Path) -> Path:
    """Make it the release before: without `archive`, without retries, and without the fault."""
    definition, reading = folder / "pipeline.yaml", folder / "tasks/read.py"
    text = definition.read_text()
    lines = [line for line in text.splitlines() if not line.startswith("  archive:")]
    definition.write_text("\n".join(lines).replace("limit: 1", "limit: 0") + "\n")
    (folder / "tasks/archive.py").unlink()
    text = reading.read_text()
    begin, end = text.index("RETURNS_FROM"), text.index("ROWS = ")
    text = text[:begin] + text[end:]
    begin, end = text.index("    less ="), text.index("    rows = ")
    reading.write_text((text[:begin] + text[end:]).replace(" - less", ""))
    return folder


@contextmanager
def filled(folder: Path) -> Iterator[Cluster]:
    """The cluster, when all that does not wait for anything has ended. Always stopped afterwards."""
    tuning = StackTuning(
        slots=8, session_timeout=timedelta(seconds=10), attempt_patience=timedelta(seconds=2)
    )
    environment = {"NIMBUS__RUNS__KEEP_FINISHED": f"{_KEPT // _HOUR}h"}
    client = httpx.Client(timeout=60, headers={"X-Nimbus-User": "ada"})
    with patch.dict(os.environ, environment), FilledStack(folder, 3, tuning=tuning) as stack, client:
        cluster = Cluster(stack, client)
        cluster.leader()
        _live(cluster)
        yield cluster


def _live(cluster: Cluster) -> None:
    """Start what is under way in the pictures."""
    cluster.publish(cluster.stack.folder / "releases/stock_forecast")
    start = "/runs"
    cluster.command(start, {"pipeline": "wide_scan", "run_id": "wide_scan-now", "parameters": {"held": 28}})
    for table in ("orders", "customers"):
        asked = {"pipeline": "warehouse_load", "run_id": f"load-{table}", "parameters": {"table": table}}
        cluster.command(start, asked)
        until("the pool", 60, partial(_is_loading, cluster))
    releases = "/pipelines/shop_daily/releases"
    older = next(one["digest"] for one in cluster.ask(releases)["releases"] if not one["active"])
    everywhere = {f"scheduler-{number}" for number in (1, 2, 3)}
    path = f"{releases}/{older}"
    until("the older release", 60, lambda: everywhere <= set(cluster.ask(path)["holders"]["holding"]))
    first = datetime.now(UTC) - 31 * _DAY
    cluster.command(
        "/backfills",
        {
            "id": "shop-october",
            "pipeline": "shop_daily",
            "from": f"{first:%Y-%m-%d}",
            "to": f"{first + 6 * _DAY:%Y-%m-%d}",
            "max_parallel": 3,
            "parameters": {"held_day": f"{first + 2 * _DAY:%Y-%m-%d}"},
        },
    )
    asked = {"pipeline": "nightly_close", "from": f"{first:%Y-%m-%d}", "to": f"{first + 5 * _DAY:%Y-%m-%d}"}
    cluster.command("/backfills", {"id": "close-october", **asked})
    for name in ("shop_daily", "nightly_close"):
        until(f"the failure of {name}", 120, partial(_has_failed, cluster, name))
    until("the scans", 120, lambda: cluster.run("wide_scan-now")["tasks_done"] >= 22)
    until("the backfill", 120, lambda: cluster.ask("/backfills/shop-october")["succeeded"] >= 3)
    until("the pause", 120, lambda: cluster.ask("/backfills/close-october")["state"] == "paused")
    cluster.whole()


def newest_scheduled(ask: Callable[[str], Any], pipeline: str) -> dict[str, Any]:
    """The newest run of a pipeline that its schedule has started; `ask` asks for documents of the API."""
    found = ask(f"/runs?pipeline={pipeline}&limit=20")["runs"]
    return next((run for run in found if run["cause"] == "schedule"), {"state": "none"})


def _is_loading(cluster: Cluster) -> bool:
    """Whether the load of the orders has the pool."""
    tasks = {task["name"]: task for task in cluster.run("load-orders")["tasks"]}
    return bool(tasks["load"]["state"] == "running")


def _has_failed(cluster: Cluster, pipeline: str) -> bool:
    return bool(newest_scheduled(cluster.ask, pipeline)["state"] == "failed")
