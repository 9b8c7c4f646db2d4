"""The ResourceManager's REST, as documented. It needs no Java, so it is enough for tests without Spark."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from tests.nimbus.yarn.manager import QUEUE, STARTED_MS, Application, ResourceManager

_APPLICATION = re.compile(r"/ws/v1/cluster/apps/([^/]+)")
_STATE = re.compile(r"/ws/v1/cluster/apps/([^/]+)/state")
_ACCESS = re.compile(r"/ws/v1/cluster/queues/([^/]+)/access")

Answer = tuple[int, dict[str, Any]]


class Rest:
    """One ResourceManager's address.

    Attributes:
        standby: Whether it is a standby. It redirects to `leader`, if that is known.
        broken: Whether it answers 500.
    """

    def __init__(self, manager: ResourceManager) -> None:
        self._manager = manager
        self.standby = self.broken = False
        self.leader: str | None = None
        self.asked: list[str] = []
        self._server: ThreadingHTTPServer | None = None
        self._thread: threading.Thread | None = None
        self.port = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Listen, on the same port as before."""
        self._server = ThreadingHTTPServer(("127.0.0.1", self.port), self._handler())
        self.port = self._server.server_port
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), name="rest")
        self._thread.start()

    def stop(self) -> None:
        """Refuse connections."""
        if self._server is not None and self._thread is not None:
            self._server.shutdown()
            self._thread.join(60)
            self._server.server_close()
            self._server = None

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        rest = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                rest.asked.append(f"{self.command} {self.path}")
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                place = urlsplit(self.path)
                headers: dict[str, str] = {}
                if rest.broken:
                    status, text = 500, "a NullPointerException"
                elif rest.standby and place.path != "/ws/v1/cluster/info":
                    status, text, headers = rest.elsewhere(self.path)
                else:
                    query = {name: values[-1] for name, values in parse_qs(place.query).items()}
                    status, found = rest.answer(self.command, place.path, query, body)
                    text = json.dumps(found)
                data = text.encode()
                self.send_response(status)
                for name, value in headers.items():
                    self.send_header(name, value)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_PUT = do_GET  # noqa: N815 - the server's name for it

            def log_message(self, *_: object) -> None:
                pass

        return Handler

    def elsewhere(self, path: str) -> tuple[int, str, dict[str, str]]:
        """The answer of a standby: a redirect to the leader, or to itself while there is none."""
        if self.leader is not None:
            words = f"This is standby RM. The redirect url is: {path}"
            return 307, words, {"Location": f"{self.leader}{path}"}
        words = "Can not find any active RM. Will retry in next 1 seconds."
        return 307, words, {"Refresh": f"1;url={self.url}{path}"}

    def answer(self, method: str, path: str, query: dict[str, str], body: bytes) -> Answer:
        """The answer of a leader."""
        if path == "/ws/v1/cluster/info":
            state = "STANDBY" if self.standby else "ACTIVE"
            return 200, {"clusterInfo": {"haState": state, "resourceManagerVersion": "3.5.0"}}
        if path == "/ws/v1/cluster/apps":
            return 200, self._list(query)
        if path == "/ws/v1/cluster/scheduler":
            return 200, self._scheduler()
        if match := _ACCESS.fullmatch(path):
            return self._access(match[1], query)
        match = _STATE.fullmatch(path) or _APPLICATION.fullmatch(path)
        found = None if match is None else self._manager.applications.get(match[1])
        if found is None:
            message = f"app with id: {path.rpartition('/')[2]} not found"
            return 404, {"RemoteException": {"exception": "NotFoundException", "message": message}}
        if method == "PUT":
            return self._put_state(found, query, body)
        return 200, {"app": self._told(found)}

    def _list(self, query: dict[str, str]) -> dict[str, Any]:
        tags = set(query["applicationTags"].lower().split(",")) if "applicationTags" in query else None
        found = [
            self._told(one)
            for one in list(self._manager.applications.values())
            if (tags is None or tags & one.tags) and query.get("user") in {None, one.user}
        ]
        return {"apps": {"app": found} if found else None}

    def _put_state(self, found: Application, query: dict[str, str], body: bytes) -> Answer:
        user = query.get("user.name", "dr.who")
        if self._manager.submitters is not None and user not in self._manager.submitters:
            message = f"User {user} cannot perform operation MODIFY_APP on {found.id}"
            return 403, {"RemoteException": {"exception": "ForbiddenException", "message": message}}
        if json.loads(body) != {"state": "KILLED"}:
            return 400, {"RemoteException": {"exception": "BadRequestException", "message": "state"}}
        threading.Thread(
            target=self._manager.kill, args=(found.id, f"Application killed by user {user}"), name="kill"
        ).start()
        return 202, {"state": found.state}

    def _scheduler(self) -> dict[str, Any]:
        used, capacity = self._manager.used, self._manager.capacity
        share = round(100 * used.memory_mb / capacity.memory_mb, 1) if capacity.memory_mb else 100.0
        queue = {
            "queueName": QUEUE,
            "queuePath": f"root.{QUEUE}",
            "capacity": 100.0,
            "usedCapacity": share,
            "resourcesUsed": {"memory": used.memory_mb, "vCores": used.cores},
            "numPendingApplications": 0,
        }
        root = {"type": "capacityScheduler", "queueName": "root", "queues": {"queue": [queue]}}
        return {"scheduler": {"schedulerInfo": root}}

    def _access(self, queue: str, query: dict[str, str]) -> Answer:
        user = query.get("user", "")
        if queue != QUEUE or (self._manager.submitters is not None and user not in self._manager.submitters):
            message = (
                f"User={user} doesn't haven access to queue={queue} so it cannot check ACLs for other users."
            )
            return 403, {"RemoteException": {"exception": "ForbiddenException", "message": message}}
        return 200, {"allowed": True, "user": user, "diagnostics": ""}

    def _told(self, one: Application) -> dict[str, Any]:
        told: dict[str, Any] = {
            "id": one.id,
            "user": one.user,
            "name": one.name,
            "queue": one.queue,
            "state": one.state,
            "finalStatus": one.final_status,
            "applicationType": "SPARK",
            "applicationTags": ",".join(sorted(tag.lower() for tag in one.tags)),
            "diagnostics": one.words,
            "startedTime": STARTED_MS,
            "trackingUrl": one.tracking_url,
        }
        if one.master is not None:
            told |= {"amHostHttpAddress": "127.0.0.1:8042", "allocatedMB": one.used.memory_mb}
        elif one.state == "ACCEPTED":
            size = {"memory": one.master_size.memory_mb, "vCores": one.master_size.cores}
            told["diagnostics"] = "Application is added to the scheduler and is not yet activated. "
            told["resourceRequests"] = [{"capability": size, "numContainers": 1, "resourceName": "*"}]
        return told


@contextmanager
def resource_manager(manager: ResourceManager) -> Iterator[Rest]:
    """Serve the REST of a manager."""
    rest = Rest(manager)
    rest.start()
    try:
        yield rest
    finally:
        rest.stop()
