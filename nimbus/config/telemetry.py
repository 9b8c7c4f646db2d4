"""Where traces and lineage are sent: `telemetry`."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated

from pydantic import BeforeValidator, Field

from nimbus.config import texts
from nimbus.config.checking import Strict
from nimbus.config.problems import KeyPath
from nimbus.config.values import AbsoluteFile, PositiveDuration

Endpoint = Annotated[str, BeforeValidator(texts.endpoint)]


class Traces(Strict):
    """A collector of traces that speaks OTLP over HTTP."""

    endpoint: Endpoint
    """Whole: with `/v1/traces`, or whatever path it has."""
    headers_file: AbsoluteFile | None = None
    """Headers of each request, as `Name: value` in lines; read at each try. May hold secrets."""
    ca_file: AbsoluteFile | None = None
    """Authorities that may have signed the server's certificate. None: those of the library."""
    timeout: PositiveDuration = timedelta(seconds=10)
    """Of one try."""


class Lineage(Strict):
    """What takes OpenLineage's events: a server, or a file."""

    url: Endpoint | None = None
    """Whole: with `/api/v1/lineage`, or whatever path it has."""
    file: AbsoluteFile | None = None
    """Events are appended to it, one in a line."""
    namespace: Annotated[str, Field(min_length=1, max_length=200)] | None = None
    """Of all jobs. None: `cluster.root` without its first slash."""
    headers_file: AbsoluteFile | None = None
    """As that of traces."""
    ca_file: AbsoluteFile | None = None
    """As that of traces."""
    timeout: PositiveDuration = timedelta(seconds=5)
    """Of one event."""
    spark: bool = False
    """Whether Spark tasks get what OpenLineage's listener needs to name their parent."""


class Telemetry(Strict):
    """Traces and lineage of runs."""

    traces: Traces | None = None
    lineage: Lineage | None = None
    give_up_after: PositiveDuration = timedelta(hours=1)
    """From the end of a run; it stays in ZooKeeper until all is sent or given up."""


def telemetry_faults(telemetry: Telemetry) -> Iterator[tuple[KeyPath, str]]:
    """The key to look at and what is wrong with it, for each fault."""
    lineage = telemetry.lineage
    if lineage is None:
        return
    if (lineage.url is None) == (lineage.file is None):
        given = "neither url nor file is given" if lineage.url is None else "url and file are given"
        yield ("telemetry", "lineage"), f"{given}: give one of them"
    for name in ("headers_file", "ca_file"):
        if getattr(lineage, name) is not None and lineage.url is None:
            yield ("telemetry", "lineage", name), f"{name} is given and url is not; remove it"
