"""Spark's standalone manager, through the REST gateway of its masters.

Source: measured with Spark 4.3. A standby or recovering master answers without `success`. After a recovery, a
driver that ended while its master was down is `ERROR`, and the driver of a killed client is `FINISHED`: so
only END decides, never this state. There is no list of drivers by name.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import quote

from nimbus.domain.wording import counted
from nimbus.worker.application.bootstrap import VARIABLE
from nimbus.worker.application.manager import (
    Cached,
    ClusterUnreachableError,
    DriverState,
    DriverStatus,
    NoAnswerError,
    NotSentError,
    Submission,
    SubmissionRefusedError,
    SubmissionUnknownError,
    ask,
)

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
"""In the answer of a standby or recovering master: "Current state is not alive: STANDBY"."""


class StandaloneManager:
    """See `nimbus.worker.application.manager.ClusterManager`."""

    def __init__(
        self,
        master: str,
        rest: Sequence[str],
        spark_version: str,
        token: Callable[[], str | None] = lambda: None,
        pages: Sequence[str] = (),
    ) -> None:
        """Create the client.

        Args:
            master: All masters, `spark://host:port,host:port`.
            rest: Base URLs of the gateways of all masters.
            spark_version: The version of the installed Spark.
            token: For the gateways, if they need one (Spark's JWSFilter). Raises NimbusError.
            pages: Base URLs of the masters' web UIs, which show how full the cluster is.
        """
        self._master, self._rest, self._version = master, tuple(rest), spark_version
        self._token = token
        self._queue = Cached(lambda: next(self._read_queue(pages), ""))

    def submit(self, submission: Submission) -> str:
        """See `ClusterManager.submit`."""
        body = json.dumps(self._request(submission)).encode()
        reasons: list[str] = []
        for url in self._rest:
            try:
                answer = self._ask(f"{url}/v1/submissions/create", body)
            except NotSentError as exc:
                reasons.append(f"{url}: {exc}")
                continue
            except NoAnswerError as exc:
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
        # A Python file is refused as a main resource; the main class SparkSubmit accepts it in client mode.
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

    def find(self, name: str) -> str | None:  # noqa: ARG002 - the port's signature
        """See `ClusterManager.find`. Standalone has no list of drivers by name."""
        return None

    def probe(self, driver: str) -> DriverStatus:
        """See `ClusterManager.probe`."""
        report = DriverStatus(DriverState.UNKNOWN, "no master answers")
        for answer in self._answers(f"status/{quote(driver, safe='')}", None):
            words = str(answer.get("driverState") or answer.get("message") or "")
            if answer.get("success") is True:
                state = _STATES.get(words, DriverState.UNKNOWN)
                if state is DriverState.GONE:
                    return DriverStatus(state, f"{_told(words, answer)}{_log_of(driver, answer)}")
                queue = self._queue.value() if state is DriverState.WAITING else ""
                return DriverStatus(state, _told(words, answer) + (f"; {queue}" if queue else ""))
            if words:
                report = DriverStatus(DriverState.UNKNOWN, words[:300])
            elif answer.get("submissionId") == driver:
                return DriverStatus(DriverState.GONE, "the master that leads does not know it")
        return report

    def kill(self, driver: str) -> None:
        """See `ClusterManager.kill`."""
        answers = list(self._answers(f"kill/{quote(driver, safe='')}", b""))
        if all(_NOT_NOW in str(answer.get("message")) for answer in answers):
            raise ClusterUnreachableError(f"no master takes the order to kill {driver}")

    def _answers(self, what: str, body: bytes | None) -> Iterator[Mapping[str, Any]]:
        for url in self._rest:
            try:
                yield self._ask(f"{url}/v1/submissions/{what}", body)
            except (NotSentError, NoAnswerError):
                continue

    @staticmethod
    def _read_queue(pages: Sequence[str]) -> Iterator[str]:
        """How full the cluster is, if the page of the leading master says it."""
        for page in pages:
            with suppress(NotSentError, NoAnswerError, KeyError, TypeError, ValueError, AttributeError):
                said = ask("GET", f"{page}/json/").said  # the token is for the gateways
                if said.get("status") == "ALIVE":
                    yield _figures(said)

    def _ask(self, url: str, body: bytes | None) -> Mapping[str, Any]:
        return ask("GET" if body is None else "POST", url, body, token=self._token).said


def _told(words: str, answer: Mapping[str, Any]) -> str:
    """State and error, without the line before an exception and the stack after it."""
    lines = str(answer.get("message") or "").removeprefix(_EXCEPTION).strip().splitlines()
    return f"{words}: {lines[0][:300]}" if lines else words


def _log_of(driver: str, answer: Mapping[str, Any]) -> str:
    """The place of an ended driver's log, because its bootstrap may not have sent any of it."""
    worker = answer.get("workerHostPort")
    where = f"{driver}/stderr in the work folder of worker {worker}"
    return f"; its log is {where}, whose web pages show it" if worker else ""


def _figures(said: Mapping[str, Any]) -> str:
    used, memory = int(said["memoryused"]) / 1024, int(said["memory"]) / 1024
    drivers = sum(driver["state"] == "SUBMITTED" for driver in said["activedrivers"])
    applications = sum(application["state"] == "WAITING" for application in said["activeapps"])
    return (
        f"{int(said['coresused'])} of {int(said['cores'])} cores and {used:.1f} of {memory:.1f} GiB "
        f"are in use, {counted(drivers, 'driver')} and {counted(applications, 'application')} wait"
    )
