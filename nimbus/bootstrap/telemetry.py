"""Builds the senders of traces and lineage from the section `telemetry`."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from urllib.parse import urlsplit

from prometheus_client import CollectorRegistry

from nimbus.adapters.store.board import TreeAttemptBoard
from nimbus.adapters.store.calls import calls_on
from nimbus.adapters.telemetry.lineage import LineageSink
from nimbus.adapters.telemetry.sink import RunFacts
from nimbus.adapters.telemetry.traces import TraceSink
from nimbus.bootstrap.resources import Resources
from nimbus.config import InvalidConfigurationError, Settings
from nimbus.config.problems import Problem
from nimbus.config.services import LineageSection
from nimbus.domain.ids import PipelineName
from nimbus.engine.sending import RunExports
from nimbus.ports import RunSink
from nimbus.scheduler.releases import LocalReleases
from nimbus.telemetry.engine import ExportMetrics
from nimbus.worker.settings import TaskTelemetry


def missing_extras(settings: Settings) -> list[Problem]:
    """Configured sinks whose extra is not installed on this host."""
    telemetry = settings.telemetry
    needed = (
        ("traces", "otel", telemetry.traces, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")),
        ("lineage", "openlineage", telemetry.lineage, ("openlineage.client",)),
    )
    return [
        Problem(
            file="configuration",
            key=f"telemetry.{key}",
            message=f"needs the extra {extra}: pip install 'nimbus-scheduler[{extra}]'",
        )
        for key, extra, section, modules in needed
        if section is not None and not all(map(_is_installed, modules))
    ]


def build_exports(
    resources: Resources,
    releases: LocalReleases,
    registry: CollectorRegistry,
    *,
    leads: Callable[[], bool],
) -> RunExports | None:
    """The exporter of traces and lineage, which works while this scheduler leads; None if not configured.

    Raises InvalidConfigurationError: one needs an extra that is not installed.
    """
    settings = resources.settings
    if problems := missing_extras(settings):
        raise InvalidConfigurationError(problems)
    if not (sinks := _sinks(resources, releases)):
        return None
    return RunExports(
        sinks,
        leads=leads,
        clock=resources.clock,
        give_up_after=settings.telemetry.give_up_after,
        metrics=ExportMetrics(registry),
    )


def lineage_namespace(settings: Settings) -> str:
    """The namespace of all jobs in lineage."""
    lineage = settings.telemetry.lineage
    return (None if lineage is None else lineage.namespace) or settings.cluster.root.strip("/")


def task_telemetry(settings: Settings) -> TaskTelemetry:
    """A worker's telemetry settings for its tasks."""
    traces, lineage = settings.telemetry.traces, settings.telemetry.lineage
    return TaskTelemetry(
        traces=traces is not None,
        namespace=lineage_namespace(settings),
        transport={} if lineage is None or not lineage.spark else _transport(lineage),
    )


def _transport(lineage: LineageSection) -> dict[str, str]:
    """The transport of OpenLineage's listener, without the server's keys, which every task could read."""
    if lineage.url is None:
        return {"transport.type": "file", "transport.location": str(lineage.file)}
    parts = urlsplit(lineage.url)
    return {
        "transport.type": "http",
        "transport.url": f"{parts.scheme}://{parts.netloc}",
        "transport.endpoint": parts.path,
    }


def _sinks(resources: Resources, releases: LocalReleases) -> dict[str, RunSink]:
    settings = resources.settings
    sinks: dict[str, RunSink] = {}
    if (traces := settings.telemetry.traces) is not None:
        sinks["traces"] = TraceSink(
            _facts(resources, releases),
            endpoint=traces.endpoint,
            headers_file=traces.headers_file,
            ca_file=traces.ca_file,
            timeout=traces.timeout,
            service=settings.cluster.root.strip("/"),
        )
    if (lineage := settings.telemetry.lineage) is not None:
        sinks["lineage"] = LineageSink(
            _facts(resources, releases),
            place=lineage.url or lineage.file or "",
            namespace=lineage_namespace(settings),
            headers_file=lineage.headers_file,
            ca_file=lineage.ca_file,
            timeout=lineage.timeout,
            public_url=settings.alerts.public_url,
        )
    return sinks


def _facts(resources: Resources, releases: LocalReleases) -> RunFacts:
    reader = resources.reader

    def owner(name: PipelineName) -> str | None:
        record = reader.pipeline(name)
        return None if record is None else record.owner

    return RunFacts(
        read_cluster=TreeAttemptBoard(calls_on(resources.session), resources.settings.cluster.root).cluster,
        read_run=resources.run,
        read_slots=reader.slots,
        owner=owner,
        sql=releases.text,
    )


def _is_installed(module: str) -> bool:
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False
