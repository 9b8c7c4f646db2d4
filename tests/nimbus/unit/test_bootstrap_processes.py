"""The start and the stop of both daemons, when a part of them fails."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from structlog.testing import capture_logs

from nimbus.api.server import PortInUseError
from nimbus.bootstrap import processes, worker
from nimbus.bootstrap.resources import SystemClock
from nimbus.config import load_settings
from nimbus.engine.loop import Engine
from nimbus.engine.policy import Policy
from nimbus.ports import StoreUnavailableError
from nimbus.scheduler.followers import CatalogFollower
from nimbus.scheduler.registrar import Registrar
from nimbus.scheduler.scheduler import Parts, Scheduler
from nimbus.telemetry.daemon import ReadinessMetrics
from nimbus.telemetry.engine import EngineMetrics

WORKER = """\
zookeeper: {hosts: "zk1:2181"}
storage: {bucket: nimbus}
scheduler: {state_dir: /var/lib/nimbus}
worker: {data: /srv/data}
"""


class Stub:
    """A part of a daemon: it notes which of its methods are called. `failing` ones raise."""

    def __init__(self, name: str, called: list[str], failing: Exception | None = None) -> None:
        self._name, self._called, self._failing = name, called, failing
        self.failure = None

    def __getattr__(self, method: str) -> Callable[..., None]:
        def note(*_given: object) -> None:
            self._called.append(f"{self._name}.{method}")
            if self._failing is not None and method in ("withdraw", "start"):
                raise self._failing

        return note


def test_worker_that_is_stopped_while_zookeeper_is_away_stops_all_its_parts_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "nimbus.yaml"
    file.write_text(WORKER)
    called: list[str] = []
    made: dict[str, Any] = {
        "open_resources": SimpleNamespace(
            settings=load_settings(file, {}), session=Stub("session", called), local=Stub("local", called)
        ),
        "build_syncer": Stub("syncer", called),
        "build_collector": Stub("collector", called),
        "build_metrics_server": Stub("metrics", called),
        "TreeRegistrations": Stub("registrations", called, StoreUnavailableError("no answer")),
    }
    for name, part in made.items():
        monkeypatch.setattr(processes, name, lambda *_given, part=part, **_named: part)
    built = Stub("worker", called)
    monkeypatch.setattr(worker, "build_worker", lambda *_given, **_named: built)
    for name in ("configure", "give_back_large_blocks", "tell_build", "add_sync_metrics", "_look_for_java"):
        monkeypatch.setattr(processes, name, lambda *_given: None)
    monkeypatch.setattr(processes, "_keep_what_is_loaded", lambda: None)

    def until_signal(start: Callable[[], None], stop: Callable[[], None], _limit: timedelta) -> int:
        start()
        called.clear()
        stop()
        return 0

    monkeypatch.setattr(processes, "run_until_signal", until_signal)

    assert processes.run_worker(made["open_resources"].settings) == 0
    assert called == [
        "collector.stop_soon",
        "worker.drain",
        "worker.unended",
        "worker.close",
        "registrations.withdraw",
        "syncer.close",
        "collector.stop",
        "metrics.stop",
        "session.close",
    ]


def test_worker_waits_for_its_attempts_until_its_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    now, left = [0.0], [frozenset({"a", "b"}), frozenset({"b"}), frozenset()]
    monkeypatch.setattr(processes, "boottime_s", lambda: now[0])
    monkeypatch.setattr(processes.time, "sleep", lambda _s: now.__setitem__(0, now[0] + 10))
    ending: Any = SimpleNamespace(unended=lambda: left.pop(0))
    busy: Any = SimpleNamespace(unended=lambda: frozenset({"a"}))

    with capture_logs() as logs:
        processes._await_attempts(ending, timedelta(minutes=1))
        took_s = now[0]
        processes._await_attempts(busy, timedelta(0))
        at_once_s = now[0] - took_s
        processes._await_attempts(busy, timedelta(minutes=1))

    assert (took_s, at_once_s, now[0]) == (20, 0, 80)
    assert [log["event"] for log in logs] == ["drain_timed_out"]


def test_scheduler_that_cannot_listen_stops_without_further_errors() -> None:
    called: list[str] = []

    def part(name: str, failing: Exception | None = None) -> Any:
        return Stub(name, called, failing)

    busy = PortInUseError("127.0.0.1", 8470, "scheduler.port")
    parts = Parts(
        session=part("session"),
        syncer=part("syncer"),
        follower=CatalogFollower(part("catalog"), lambda _refs: None, lambda: None),
        access=part("access"),
        registrar=Registrar(
            registrations=part("registrations"),
            info=part("report").info,
            publish_readiness=lambda _info: None,
            quarantine=lambda _found: None,
            stand=lambda _stands: None,
            metrics=ReadinessMetrics(CollectorRegistry()),
        ),
        announcer=part("announcer"),
        engine=Engine(
            store_for=part("store").open,
            still_leads=lambda: False,
            start_effect=lambda _effect: None,
            policy=Policy(),
            clock=SystemClock(),
            metrics=EngineMetrics(CollectorRegistry()),
            on_status=lambda: None,
        ),
        effects=part("effects"),
        election=part("election"),
        collector=part("collector"),
        api=part("api", busy),
        worker=None,
    )
    scheduler = Scheduler(parts)

    with pytest.raises(PortInUseError):
        scheduler.start()
    with capture_logs() as lines:
        scheduler.stop()

    assert [line for line in lines if line["log_level"] == "error"] == []
    assert called[-2:] == ["api.stop", "session.close"]


@pytest.mark.parametrize("id_taken", ["", "in use by a live scheduler"])
def test_scheduler_queues_only_once_it_is_registered(id_taken: str) -> None:
    called: list[str] = []
    names = ("session", "syncer", "follower", "access", "announcer", "engine", "effects", "election")
    parts: Any = {name: Stub(name, called) for name in (*names, "registrar", "collector", "api")}
    parts["registrar"].id_taken = id_taken

    Scheduler(Parts(**parts, worker=None)).start()

    queued = [] if id_taken else ["election.add_to_leader_lock_queue"]
    at = called.index("registrar.report_once")
    assert called[at:] == ["registrar.report_once", *queued, "registrar.start", "collector.start"]
    assert "election.add_to_leader_lock_queue" not in called[:at]
