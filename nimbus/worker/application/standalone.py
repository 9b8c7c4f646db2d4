"""Spark's standalone manager, through the REST gateway of its masters.

Source: measured with Spark 4.3. A master that stands by, or that recovers, answers without `success`. A
driver that ended while its master was down is `ERROR` after the recovery, and one of a client that was killed
`FINISHED`: so END is believed, never this. There is no list of drivers by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any
from urllib.parse import quote, urlsplit

from nimbus.domain.errors import NimbusError
from nimbus.worker.application.bootstrap import VARIABLE
from nimbus.worker.application.manager import (
    ClusterUnreachableError,
    DriverReport,
    DriverState,
    Submission,
    SubmissionRefusedError,
    SubmissionUnknownError,
)

_ANSWER_S = 10.0
_LARGEST_ANSWER = 1 << 20
_STATES = {
    "SUBMITTED": DriverState.WAITING,
    "RUNNING": DriverState.RUNNING,
    "RELAUNCHING": DriverState.RUNNING,
    "UNKNOWN": DriverState.UNKNOWN,
    "FINISHED": DriverState.GONE,
    "FAILED": DriverState.GONE,
    "KILLED": DriverState.GONE,
    "ERROR": DriverState.GONE,
    "NOT_FOUND": DriverState.GONE,
}
_EXCEPTION = "Exception from the cluster:"
_NOT_NOW = "not alive"
"""Of a master that stands by or recovers: "Current state is not alive: STANDBY"."""


class _NotSentError(Exception):
    """No connection was made, so nothing was asked."""


class _NoAnswerError(Exception):
    """It was asked, and did not answer."""


class StandaloneManager:
    """See `nimbus.worker.application.manager.ClusterManager`."""

    def __init__(
        self,
        master: str,
        rest: Sequence[str],
        spark_version: str,
        token: Callable[[], str | None] = lambda: None,
    ) -> None:
        """Make it.

        Args:
            master: Of all masters, `spark://host:port,host:port`.
            rest: Base URLs of the gateways of all masters.
            spark_version: Ours.
            token: What the gateways want to hear, if anything (Spark's JWSFilter). Raises NimbusError.
        """
        self._master, self._rest, self._version = master, tuple(rest), spark_version
        self._token = token

    def submit(self, submission: Submission) -> str:
        """See `ClusterManager.submit`."""
        body = json.dumps(self._request(submission)).encode()
        reasons: list[str] = []
        for url in self._rest:
            try:
                answer = self._ask(f"{url}/v1/submissions/create", body)
            except _NotSentError as exc:
                reasons.append(f"{url}: {exc}")
                continue
            except _NoAnswerError as exc:
                raise SubmissionUnknownError(f"{url} did not answer a submission: {exc}") from exc
            message = str(answer.get("message", ""))
            if answer.get("success") is True and isinstance(answer.get("submissionId"), str):
                return str(answer["submissionId"])
            if _NOT_NOW not in message:
                raise SubmissionRefusedError(f"{url} refuses the driver: {message[:300]}")
            reasons.append(f"{url}: {message[:200]}")
        raise ClusterUnreachableError("no master takes drivers now: " + "; ".join(reasons))

    def _request(self, submission: Submission) -> dict[str, Any]:
        conf = {
            **submission.conf,
            "spark.app.name": submission.name,
            "spark.master": self._master,
            "spark.driver.supervise": "false",  # a restarted driver would run the task's code again
        }
        # Python is refused as a main resource; SparkSubmit as the main class takes it in client mode.
        arguments = ["--master", self._master, "--name", submission.name]
        for name in sorted(conf):
            if name not in ("spark.master", "spark.app.name", "spark.submit.deployMode"):
                arguments += ["--conf", f"{name}={conf[name]}"]
        return {
            "action": "CreateSubmissionRequest",
            "clientSparkVersion": self._version,
            "appResource": "",
            "mainClass": "org.apache.spark.deploy.SparkSubmit",
            "appArgs": [*arguments, submission.bootstrap_url],
            "environmentVariables": {
                "SPARK_ENV_LOADED": "1",
                **submission.environment,
                VARIABLE: submission.startup,
            },
            "sparkProperties": {**conf, "spark.submit.deployMode": "cluster"},
        }

    def look(self, driver: str) -> DriverReport:
        """See `ClusterManager.look`."""
        report = DriverReport(DriverState.UNKNOWN, "no master answers")
        for answer in self._answers(f"status/{quote(driver, safe='')}", None):
            words = str(answer.get("driverState") or answer.get("message") or "")
            if answer.get("success") is True:
                state = _STATES.get(words, DriverState.UNKNOWN)
                where = _log_of(driver, answer) if state is DriverState.GONE else ""
                return DriverReport(state, f"{_told(words, answer)}{where}")
            if words:
                report = DriverReport(DriverState.UNKNOWN, words[:300])
            elif answer.get("submissionId") == driver:
                return DriverReport(DriverState.GONE, "the master that leads does not know it")
        return report

    def kill(self, driver: str) -> None:
        """See `ClusterManager.kill`."""
        answers = list(self._answers(f"kill/{quote(driver, safe='')}", b""))
        if all(_NOT_NOW in str(answer.get("message")) for answer in answers):
            raise ClusterUnreachableError(f"no master takes the order to kill {driver}")

    def _answers(self, what: str, body: bytes | None) -> Iterator[dict[str, Any]]:
        for url in self._rest:
            try:
                yield self._ask(f"{url}/v1/submissions/{what}", body)
            except (_NotSentError, _NoAnswerError):
                continue

    def _ask(self, url: str, body: bytes | None) -> dict[str, Any]:
        try:
            token = self._token()
        except NimbusError as exc:
            raise _NotSentError(str(exc)) from exc
        headers = {"Content-Type": "application/json"}
        return _ask(url, body, headers if token is None else {**headers, "Authorization": f"Bearer {token}"})


def _told(words: str, answer: dict[str, Any]) -> str:
    """State and error. Spark puts a line before an exception, and its stack behind it."""
    lines = str(answer.get("message") or "").removeprefix(_EXCEPTION).strip().splitlines()
    return f"{words}: {lines[0][:300]}" if lines else words


def _log_of(driver: str, answer: dict[str, Any]) -> str:
    """Where the log of a driver is that has ended, perhaps before its bootstrap could send any of it."""
    worker = answer.get("workerHostPort")
    where = f"{driver}/stderr in the work folder of worker {worker}"
    return f"; its log is {where}, whose web pages show it" if worker else ""


def _ask(url: str, body: bytes | None, headers: dict[str, str]) -> dict[str, Any]:
    """Ask in two steps, so that a request which was never sent can be told from one without an answer."""
    place = urlsplit(url)
    connect = HTTPSConnection if place.scheme == "https" else HTTPConnection
    connection = connect(place.hostname or "", place.port, timeout=_ANSWER_S)
    try:
        try:
            connection.connect()
        except OSError as exc:
            raise _NotSentError(str(exc)) from exc
        try:
            method = "GET" if body is None else "POST"
            connection.request(method, place.path, body, headers)
            found = json.loads(connection.getresponse().read(_LARGEST_ANSWER))
        except (OSError, HTTPException, ValueError) as exc:
            raise _NoAnswerError(f"{type(exc).__name__}: {exc}") from exc
    finally:
        connection.close()
    return found if isinstance(found, dict) else {}
