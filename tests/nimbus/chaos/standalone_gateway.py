"""The REST gateway of a standalone master whose drivers are processes of this host, without any Spark."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from nimbus.worker.application.bootstrap import VARIABLE
from nimbus.worker.application.manager import DriverState, DriverStatus, Submission
from tests.nimbus.cluster_bench import ProcessManager

_WORDS = {DriverState.WAITING: "SUBMITTED", DriverState.RUNNING: "RUNNING"}


class StandaloneGateway:
    """Implements the protocol that `nimbus.worker.application.standalone` uses."""

    def __init__(self, root: Path) -> None:
        self.manager = manager = ProcessManager(root)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                data = json.dumps(_answer(manager, self.path, body)).encode()
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST  # noqa: N815 - the server's name for it

            def log_message(self, *_: object) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="gateway")
        self._thread.start()

    def close(self) -> None:
        """End it, and its drivers."""
        self._server.shutdown()
        self._thread.join(60)
        self._server.server_close()
        self.manager.close()


def _answer(manager: ProcessManager, path: str, body: bytes) -> dict[str, Any]:
    what, _, driver = path.removeprefix("/v1/submissions/").partition("/")
    if what == "create":
        return {"success": True, "submissionId": manager.submit(_submission(json.loads(body)))}
    if what == "kill":
        manager.kill(driver)
        return {"success": True, "submissionId": driver}
    report = manager.probe(driver)
    if report == DriverStatus(DriverState.GONE, "not found"):
        return {"success": False, "submissionId": driver}
    words = _WORDS.get(report.state, report.words)
    return {"success": True, "submissionId": driver, "driverState": words}


def _submission(said: dict[str, Any]) -> Submission:
    environment = dict(said["environmentVariables"])
    return Submission(
        name=said["sparkProperties"]["spark.app.name"],
        bootstrap_url=said["appArgs"][-1],
        startup=environment.pop(VARIABLE),
        conf=said["sparkProperties"],
        environment=environment,
    )
