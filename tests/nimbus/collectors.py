"""HTTP servers that receive OTLP and OpenLineage, and check messages by the standard."""

from __future__ import annotations

import gzip
import json
import ssl
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from uuid import UUID

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span


@dataclass
class Collector:
    """The received messages."""

    port: int = 0
    scheme: str = "http"
    status: int = 200
    """Status codes of the next answers."""
    accepts: int | None = None
    """How many requests it accepts before it answers 400; None: all."""
    location: str = ""
    """Target of redirections."""
    got: list[tuple[str, Mapping[str, str], bytes]] = field(default_factory=list)
    """Path, headers and body of accepted requests."""
    refused: int = 0
    gate: threading.Event = field(default_factory=threading.Event)
    """While it is not set, the server does not answer."""

    @property
    def traces_url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/v1/traces"

    @property
    def lineage_url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.port}/api/v1/lineage"

    def spans(self) -> list[Span]:
        """All spans, in the order of arrival."""
        found: list[Span] = []
        for path, _, body in self.got[:]:
            if path == "/v1/traces":
                request = ExportTraceServiceRequest.FromString(body)
                found += [
                    span
                    for resource in request.resource_spans
                    for scope in resource.scope_spans
                    for span in scope.spans
                ]
        return found

    def events(self) -> list[dict[str, Any]]:
        """All events, in the order of arrival. Each is checked."""
        bodies = [json.loads(body) for path, _, body in self.got[:] if path == "/api/v1/lineage"]
        for event in bodies:
            check_event(event)
        return bodies


def check_event(event: Mapping[str, Any]) -> None:
    """Check a run event and its facets by https://openlineage.io/spec/2-0-2/OpenLineage.json."""
    assert event["eventType"] in ("START", "COMPLETE", "FAIL", "ABORT")
    assert datetime.fromisoformat(event["eventTime"]).tzinfo is not None
    assert event["producer"]
    assert event["schemaURL"] == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    UUID(event["run"]["runId"])
    assert event["job"]["namespace"]
    assert event["job"]["name"]
    for facet in (*event["run"]["facets"].values(), *event["job"]["facets"].values()):
        assert facet["_producer"] == event["producer"]
        assert facet["_schemaURL"].startswith("https://openlineage.io/spec/facets/")
    if (parent := event["run"]["facets"].get("parent")) is not None:
        for one in (parent, parent["root"]):
            UUID(one["run"]["runId"])
            assert one["job"]["namespace"]
            assert one["job"]["name"]


@contextmanager
def collector(certificate: Path | None = None) -> Iterator[Collector]:
    """Serve on loopback. `certificate`: a file with certificate and key; with it, the server uses TLS."""
    found = Collector(scheme="http" if certificate is None else "https")
    found.gate.set()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                body = gzip.decompress(body)
            found.gate.wait(60)
            status = 400 if found.accepts is not None and len(found.got) >= found.accepts else found.status
            if status == 200:
                found.got.append((self.path, dict(self.headers), body))
            else:
                found.refused += 1
            self.send_response(status)
            if found.location:
                self.send_header("Location", found.location)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_args: object) -> None:
            """Log nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    if certificate is not None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(server.socket, server_side=True)
    found.port = server.server_address[1]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield found
    finally:
        found.gate.set()
        server.shutdown()
        server.server_close()
        thread.join(60)
