"""The doctor's verdicts about Spark targets, with servers that answer like the real ones."""

from __future__ import annotations

import json
import re
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from nimbus.cli.doctor import CheckResult, Level
from nimbus.cli.doctor.services import targets
from nimbus.worker.application.yarn import hadoop_user
from nimbus.worker.targets import SparkTarget, TargetError, TargetKind

OURS = version("pyspark")
TOKEN = "t0ken"
READY = {"action": "ReadyzResponse", "serverSparkVersion": OURS, "success": True}
STANDBY = {"action": "ErrorResponse", "message": "Master is not ready.", "serverSparkVersion": OURS}
READYZ = "/v1/submissions/readyz"
INFO = "/ws/v1/cluster/info"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"

Answers = Mapping[str, tuple[int, object]]


@contextmanager
def serving(answers: Answers, *, wants: str | None = None, denied: str = "") -> Iterator[str]:
    """A server's URL. `wants`: the required token. `denied`: a verb that is forbidden for pods."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = answers.get(self.path, (404, {}))
            if wants is not None and self.headers.get("Authorization") != f"Bearer {wants}":
                status, body = 401, {}
            self.send_response(status)
            self.end_headers()
            self.wfile.write(json.dumps(body).encode())

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            attributes = asked["spec"]["resourceAttributes"]
            assert self.path == REVIEWS
            self.send_response(201)
            self.end_headers()
            self.wfile.write(json.dumps({"status": {"allowed": attributes["verb"] != denied}}).encode())

        def log_message(self, *_: Any) -> None:
            """Log nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join(60)


def look(**said: Any) -> CheckResult:
    target = SparkTarget(**{"name": "big", **said})
    (found,) = targets({"big": target})
    assert found.check == "target big"
    return found


def standalone(url: str, *rest: str, token: str | None = None, masters: str = "") -> CheckResult:
    address = masters or url.removeprefix("http://")
    return look(
        kind=TargetKind.STANDALONE, master=f"spark://{address}", rest=(url, *rest), token=lambda: token
    )


@contextmanager
def nobody() -> Iterator[str]:
    """An address that refuses connections."""
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{closed.getsockname()[1]}"


def test_local_target_is_well() -> None:
    assert look(kind=TargetKind.LOCAL, master="local[8]").verdict is Level.OK


def test_standalone_cluster_with_a_leading_master_is_well() -> None:
    with serving({READYZ: (200, READY)}) as leads, serving({READYZ: (503, STANDBY)}) as waits:
        found = standalone(waits, leads)

    assert (found.verdict, found.detail) == (Level.OK, f"{leads} leads, Spark {OURS}")


def test_standalone_cluster_with_one_master_away_is_a_warning() -> None:
    with serving({READYZ: (200, READY)}) as leads, nobody() as away:
        found = standalone(leads, masters=f"{leads.removeprefix('http://')},{away}")

    assert found.verdict is Level.WARN
    assert f"{away} do not answer" in found.detail


@pytest.mark.parametrize(
    ("answer", "token", "verdict", "detail"),
    [
        ((503, STANDBY), None, Level.FAIL, "no REST server takes drivers"),
        ((404, {}), None, Level.FAIL, "status 404"),
        ((200, READY), TOKEN, Level.FAIL, "refuse us"),
        (
            (200, {**READY, "serverSparkVersion": "3.5.1"}),
            None,
            Level.WARN,
            f"Spark 3.5.1; ours is {OURS}",
        ),
    ],
)
def test_standalone_cluster_that_cannot_be_used_says_why(
    answer: tuple[int, object], token: str | None, verdict: Level, detail: str
) -> None:
    with serving({READYZ: answer}, wants=token) as url:
        found = standalone(url)

    assert found.verdict is verdict
    assert detail in found.detail
    assert found.advice


def test_standalone_cluster_is_asked_with_the_token() -> None:
    with serving({READYZ: (200, READY)}, wants=TOKEN) as url:
        assert standalone(url, token=TOKEN).verdict is Level.OK


def test_standalone_cluster_without_a_master_fails() -> None:
    with nobody() as away:
        found = look(kind=TargetKind.STANDALONE, master=f"spark://{away}")

    assert (found.verdict, found.detail) == (Level.FAIL, f"no master answers: {away}")


def yarn(folder: Path, *rest: str, **more: Any) -> CheckResult:
    return look(kind=TargetKind.YARN, master="yarn", env={"HADOOP_CONF_DIR": str(folder)}, rest=rest, **more)


def test_yarn_needs_its_configuration_and_an_active_resource_manager(tmp_path: Path) -> None:
    missing = yarn(tmp_path)
    for name in ("core-site.xml", "yarn-site.xml"):
        (tmp_path / name).touch()
    active = {"clusterInfo": {"haState": "ACTIVE", "hadoopVersion": "3.4.1"}}
    with (
        serving({INFO: (200, active)}) as first,
        serving({INFO: (200, {"clusterInfo": {"haState": "STANDBY"}})}) as second,
    ):
        well, standby = yarn(tmp_path, second, first), yarn(tmp_path, second)

    assert missing.verdict is Level.FAIL
    assert "has no core-site.xml, yarn-site.xml" in missing.detail
    assert yarn(tmp_path).verdict is Level.OK
    untold = f"it does not tell whether {hadoop_user({})} may submit to queue default"
    assert (well.verdict, well.detail) == (Level.OK, f"{first} is active, Hadoop 3.4.1; {untold}")
    assert standby.verdict is Level.FAIL
    assert yarn(tmp_path, first).verdict is Level.FAIL  # it has ended


def test_yarn_is_asked_for_the_queue_and_whether_we_may_submit(tmp_path: Path) -> None:
    for name in ("core-site.xml", "yarn-site.xml"):
        (tmp_path / name).touch()
    etl = {"queueName": "etl", "queuePath": "root.etl"}
    root = {"type": "capacityScheduler", "queueName": "root", "queues": {"queue": [etl]}}
    known = {
        INFO: (200, {"clusterInfo": {"haState": "ACTIVE", "hadoopVersion": "3.4.1"}}),
        "/ws/v1/cluster/scheduler": (200, {"scheduler": {"schedulerInfo": root}}),
    }
    place = f"/ws/v1/cluster/queues/root.etl/access?{urlencode({'user': hadoop_user({})})}"

    def asked(answer: tuple[int, object], queue: str = "root.etl") -> CheckResult:
        with serving({**known, place: answer}) as url:
            return yarn(tmp_path, url, conf={"spark.yarn.queue": queue})

    well, denied = asked((200, {"allowed": True})), asked((200, {"allowed": False}))
    hidden, missing = asked((403, {})), asked((200, {}), "root.other")

    assert (well.verdict, "may submit to queue root.etl" in well.detail) == (Level.OK, True)
    assert (denied.verdict, "may not submit to queue root.etl" in denied.detail) == (Level.FAIL, True)
    assert (hidden.verdict, "does not tell whether" in hidden.detail) == (Level.OK, True)
    assert (missing.verdict, "has no queue root.other" in missing.detail) == (Level.FAIL, True)


def kubernetes(url: str, token: str | None = TOKEN) -> CheckResult:
    conf = {"spark.kubernetes.namespace": "etl"}
    return look(kind=TargetKind.KUBERNETES, master=f"k8s://{url}", conf=conf, token=lambda: token)


def test_kubernetes_is_asked_for_its_version_and_our_rights() -> None:
    answers = {"/version": (200, {"gitVersion": "v1.31.0"})}
    with serving(answers, wants=TOKEN) as url:
        well, stranger = kubernetes(url), kubernetes(url, "wrong")
    with serving(answers, denied="delete") as url:
        denied, unknown = kubernetes(url), kubernetes(url, None)

    assert (well.verdict, "v1.31.0" in well.detail) == (Level.OK, True)
    assert stranger.verdict is Level.FAIL
    assert "refuses us: 401" in stranger.detail
    assert denied.verdict is Level.FAIL
    assert "may not delete pods in etl" in denied.detail
    assert (unknown.verdict, "rights are not asked" in unknown.detail) == (Level.OK, True)
    assert kubernetes(url).verdict is Level.FAIL  # it has ended


def test_token_file_of_kubernetes_that_ends_with_a_newline_fails(tmp_path: Path) -> None:
    """Spark's client refuses it: measured with 4.3."""
    file = tmp_path / "token"
    conf = {
        "spark.kubernetes.namespace": "etl",
        "spark.kubernetes.authenticate.submission.oauthTokenFile": str(file),
    }
    found = []
    with serving({"/version": (200, {"gitVersion": "v1.31.0"})}, wants=TOKEN) as url:
        for text in (TOKEN, f"{TOKEN}\n"):
            file.write_text(text)
            target = {"kind": TargetKind.KUBERNETES, "master": f"k8s://{url}", "conf": conf}
            found.append(look(**target, token=lambda: TOKEN).verdict)

    assert found == [Level.OK, Level.FAIL]


def test_token_that_cannot_be_read_fails() -> None:
    def gone() -> str:
        raise TargetError("target big: the variable X, which has its token, is not set")

    found = look(kind=TargetKind.CONNECT, url="sc://localhost:1", token=gone)

    assert (found.verdict, "variable X" in found.detail) == (Level.FAIL, True)


def test_connect_server_that_is_away_fails() -> None:
    with nobody() as away:
        found = look(kind=TargetKind.CONNECT, url=f"sc://localhost:{away.rpartition(':')[2]}")

    assert found.verdict is Level.FAIL
    # A busy machine may take longer than the time limits of the call and of its process.
    assert re.search("UNAVAILABLE|DEADLINE_EXCEEDED|does not answer", found.detail)
