"""Traces to a collector, by OTLP over HTTP, with OpenTelemetry's own exporter."""

from __future__ import annotations

import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.trace.export import SpanExporter
    from opentelemetry.trace import SpanContext

from nimbus import __version__
from nimbus.adapters.telemetry.sink import RunFacts, new_session, read_headers
from nimbus.domain.ids import RunId
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.traces import Span, spans
from nimbus.ports import TelemetryNotSentError

AT_ONCE = 500
"""Most spans in one request."""
MAX_UNFINISHED = 1000
"""Most runs whose accepted spans are remembered."""
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TraceSink:
    """See `nimbus.ports.RunSink`. OpenTelemetry is imported with the first run."""

    follows = False

    def __init__(
        self,
        facts: RunFacts,
        *,
        endpoint: str,
        headers_file: Path | None,
        ca_file: Path | None,
        timeout: timedelta,
        service: str,
    ) -> None:
        """`timeout`: for one request, including the library's retries. `service`: name of the cluster."""
        self._facts, self._service = facts, service
        self._endpoint, self._timeout = endpoint, timeout
        self._headers_file, self._ca_file = headers_file, ca_file
        self._headers: dict[str, str] = {}
        self._exporter: SpanExporter | None = None
        self._accepted: dict[RunId, int] = {}
        """Number of accepted spans of runs with a refused span."""

    def send(self, before: Run | None, run: Run) -> int:
        """Send the trace of a run, once it has finished."""
        if not run.state.is_final or (before is not None and before.state.is_final):
            return 0
        exporter = self._current()
        done = self._accepted.get(run.id, 0)
        all_spans = list(spans(self._facts.cluster, run, self._facts.dropped(None, run)))
        while batch := all_spans[done : done + AT_ONCE]:
            if exporter.export(_readable(batch, self._service)).name != "SUCCESS":
                if len(self._accepted) >= MAX_UNFINISHED:
                    self._accepted.clear()  # they are sent again, under the same ids
                self._accepted[run.id] = done
                raise TelemetryNotSentError("the collector did not accept the spans")
            done += len(batch)
        self._accepted.pop(run.id, None)
        return len(all_spans)

    def close(self) -> None:
        if (exporter := self._exporter) is not None:
            exporter.shutdown()

    def _current(self) -> SpanExporter:
        """The exporter, recreated when the file of headers has changed."""
        from opentelemetry.exporter.otlp.proto.http import Compression
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter

        headers = read_headers(self._headers_file)
        if self._exporter is None or headers != self._headers:
            logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # we log failures ourselves
            self.close()
            self._headers = headers
            self._exporter = OTLPSpanExporter(
                endpoint=self._endpoint,
                headers=headers,
                certificate_file=None if self._ca_file is None else str(self._ca_file),
                timeout=self._timeout.total_seconds(),
                compression=Compression.Gzip,
                session=new_session(),
            )
        return self._exporter


def _readable(batch: list[Span], service: str) -> list[ReadableSpan]:
    from opentelemetry.sdk.resources import Resource

    resource = Resource({"service.name": service, "service.version": __version__})
    return [_span(span, resource) for span in batch]


def _span(span: Span, resource: Resource) -> ReadableSpan:
    """A span for the exporter. Not from a tracer, which would generate its own ids and times."""
    from opentelemetry.sdk.trace import ReadableSpan
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope
    from opentelemetry.trace import Link
    from opentelemetry.trace.status import Status, StatusCode

    return ReadableSpan(
        name=span.name,
        context=_context(span.trace_id, span.span_id),
        parent=None if span.parent_id is None else _context(span.trace_id, span.parent_id),
        resource=resource,
        attributes=span.attributes,
        links=() if span.linked is None else (Link(_context(*span.linked)),),
        status=Status(StatusCode.OK) if span.error is None else Status(StatusCode.ERROR, span.error),
        start_time=_nanoseconds(span.started_at),
        end_time=_nanoseconds(span.ended_at),
        instrumentation_scope=InstrumentationScope("nimbus", __version__),
    )


def _context(trace: str, span: str) -> SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED)
    return SpanContext(int(trace, 16), int(span, 16), is_remote=False, trace_flags=flags)


def _nanoseconds(moment: datetime) -> int:
    """Since 1970."""
    return (moment - _EPOCH) // timedelta(microseconds=1) * 1000
