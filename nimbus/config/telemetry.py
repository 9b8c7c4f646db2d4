"""Where traces and lineage are sent: `telemetry`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field

from nimbus.config import texts
from nimbus.config.checking import Strict
from nimbus.config.problems import KeyPath
from nimbus.config.unclear import Flag
from nimbus.config.values import AbsoluteFile, PositiveDuration

Endpoint = Annotated[str, BeforeValidator(texts.endpoint)]


class Traces(Strict):
    """An OTLP/HTTP collector of traces."""

    endpoint: Endpoint
    """Full URL with its path, such as `/v1/traces`."""
    headers_file: AbsoluteFile | None = None
    """Headers of each request, one `Name: value` on each line; read at each try. May contain secrets."""
    ca_file: AbsoluteFile | None = None
    """Certificate authorities for the server's certificate. None: those of the library."""
    timeout: PositiveDuration = timedelta(seconds=10)
    """Time limit of one try."""


class Lineage(Strict):
    """Receiver of OpenLineage's events: a server, or a file."""

    url: Endpoint | None = None
    """Full URL with its path, such as `/api/v1/lineage`."""
    file: AbsoluteFile | None = None
    """Events are appended to it, one on each line."""
    namespace: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Namespace of all jobs. None: `cluster.root` without its first slash."""
    headers_file: AbsoluteFile | None = None
    """As that of traces."""
    ca_file: AbsoluteFile | None = None
    """As that of traces."""
    timeout: PositiveDuration = timedelta(seconds=5)
    """Time limit for one event."""
    spark: Flag = False
    """Give Spark tasks the properties with which OpenLineage's listener names their parent."""


class Telemetry(Strict):
    """Traces and lineage of runs."""

    traces: Traces | None = None
    lineage: Lineage | None = None
    give_up_after: PositiveDuration = timedelta(hours=1)
    """Counted from the end of a run, which stays in ZooKeeper until all is sent or given up."""


def telemetry_faults(telemetry: Telemetry) -> Iterator[tuple[KeyPath, str]]:
    """Yield each fault: its key and its message."""
    lineage = telemetry.lineage
    if lineage is None:
        return
    if (lineage.url is None) == (lineage.file is None):
        given = "neither url nor file is given" if lineage.url is None else "url and file are given"
        yield ("telemetry", "lineage"), f"{given}: give one of them"
    for name in ("headers_file", "ca_file"):
        if getattr(lineage, name) is not None and lineage.url is None:
            yield ("telemetry", "lineage", name), f"{name} is given and url is not; remove it"
