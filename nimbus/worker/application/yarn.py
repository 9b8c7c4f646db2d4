"""YARN, through the REST API of its ResourceManagers and Spark's own client.

An application is ours if its user, its name and its tag agree. Ids are never read from a program's output.
A standby ResourceManager answers with a redirect without JSON; then the next one is tried.

Source: Hadoop 3.5 (RMWebServices, RMWebAppFilter, ContainerLaunch); ADR-0030.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any
from urllib.parse import quote, urlencode

from nimbus.domain.errors import NimbusError
from nimbus.worker.application.bundle import build_bundle
from nimbus.worker.application.manager import (
    Cached,
    ClusterUnreachableError,
    DriverState,
    DriverStatus,
    NoAnswerError,
    NotSentError,
    Response,
    Submission,
    SubmissionRefusedError,
    SubmissionUnknownError,
    ask,
)
from nimbus.worker.application.spark_client import ClientResult, SparkClient
from nimbus.worker.application.startup import packed

VARIABLES = "spark.yarn.appMasterEnv"
CONTAINER_VARIABLE = "CONTAINER_ID"
"""Set by a NodeManager. See `bootstrap.driver_id`."""
_STEM = "nimbus-"
_ENDED = frozenset({"FINISHED", "FAILED", "KILLED"})
_WAITS = frozenset({"NEW", "NEW_SAVING", "SUBMITTED", "ACCEPTED"})
_SEEN_WITHIN_S = 30.0
_PAUSE_S = 1.0
_NOT_SUBMITTED = "YarnClientImpl.createApplication"
"""In the client's stack trace it shows that the client failed before it had an application id."""


class YarnManager:
    """See `nimbus.worker.application.manager.ClusterManager`."""

    def __init__(self, rest: Sequence[str], client: SparkClient, user: str) -> None:
        """`rest`: base URLs of all ResourceManagers. `user`: that of the client, also for kill requests."""
        self._rest, self._client, self._user = tuple(rest), client, user
        self._bundle = build_bundle()  # now, because an upgrade replaces its files under a running worker
        self._queues = Cached(self._read_queues)

    def submit(self, submission: Submission) -> str:
        """See `ClusterManager.submit`."""
        if (earlier := self._newest(submission.name)) is not None:
            return str(earlier["id"])
        startup, theirs = packed(submission.startup), submission.conf.get("spark.yarn.tags")
        conf = {
            **_interpreter(submission.conf),
            "spark.yarn.tags": ",".join(filter(None, [theirs, tag_of(submission.name)])),
            "spark.yarn.maxAppAttempts": "1",  # a second one would run the task's code again
            "spark.yarn.submit.waitAppCompletion": "false",
            # Time until the task creates its session; YARN itself gives an ApplicationMaster ten minutes.
            "spark.yarn.am.waitTime": submission.conf.get("spark.yarn.am.waitTime", "600s"),
        }
        try:
            ended = self._client.submit(replace(submission, startup=startup), conf, self._bundle)
        except (NimbusError, OSError) as exc:
            raise ClusterUnreachableError(f"Spark's client cannot be started: {exc}") from exc
        return self._outcome(submission.name, ended)

    def _outcome(self, name: str, ended: ClientResult) -> str:
        """The id of the application that a client has submitted. Raises as `submit`."""
        said = "\n".join(ended.said.strip().splitlines()[-5:])[-600:]
        try:
            application = self._appeared(name, _SEEN_WITHIN_S if ended.exit_code == 0 else 0.0)
        except ClusterUnreachableError as exc:
            if _NOT_SUBMITTED in ended.said:
                raise
            raise SubmissionUnknownError(f"Spark's client has run, and then: {exc}") from exc
        if application is not None:
            return str(application["id"])
        if ended.exit_code is None:
            raise SubmissionUnknownError(f"Spark's client did not end in time: {said}")
        if ended.exit_code == 0:
            raise SubmissionUnknownError(
                f"Spark's client has submitted it, but the ResourceManager shows no application {name} of "
                f"user {self._user}: is that the user of the client?"
            )
        if _NOT_SUBMITTED in ended.said:
            raise ClusterUnreachableError(f"the ResourceManager gives no id: {_reason(ended.said)}")
        raise SubmissionRefusedError(f"Spark's client failed: {_reason(ended.said)}")

    def _appeared(self, name: str, within_s: float) -> Mapping[str, Any] | None:
        until_s = time.monotonic() + within_s
        while True:
            try:
                if (application := self._newest(name)) is not None or time.monotonic() >= until_s:
                    return application
            except ClusterUnreachableError:
                if time.monotonic() >= until_s:
                    raise
            time.sleep(_PAUSE_S)

    def find(self, name: str) -> str | None:
        """See `ClusterManager.find`."""
        application = self._newest(name)
        return None if application is None or application["state"] in _ENDED else str(application["id"])

    def _newest(self, name: str) -> Mapping[str, Any] | None:
        """The running application with a name, or else an ended one."""
        query = urlencode({"applicationTags": tag_of(name), "user": self._user})
        answer = self._ask("GET", f"apps?{query}")
        if answer.status != 200:
            raise ClusterUnreachableError(f"the ResourceManager does not search: {_told(answer)}")
        listed = (answer.said.get("apps") or {}).get("app") or []
        ours = [app for app in listed if self._is_ours(app) and app["name"] == name]
        return max(ours, key=lambda app: app["state"] not in _ENDED, default=None)

    def _is_ours(self, application: Mapping[str, Any]) -> bool:
        name = str(application["name"])
        tags = str(application.get("applicationTags", "")).split(",")
        return application["user"] == self._user and name.startswith(_STEM) and tag_of(name) in tags

    def probe(self, driver: str) -> DriverStatus:
        """See `ClusterManager.probe`."""
        try:
            answer = self._ask("GET", f"apps/{quote(driver, safe='')}")
        except ClusterUnreachableError as exc:
            return DriverStatus(DriverState.UNKNOWN, str(exc)[:300])
        if answer.status == 404:
            return DriverStatus(DriverState.GONE, "the ResourceManager does not know it")
        application = answer.said.get("app")
        if application is None:
            return DriverStatus(DriverState.UNKNOWN, _told(answer))
        if not self._is_ours(application):
            return DriverStatus(DriverState.UNKNOWN, f"{driver} is an application of somebody else")
        state, words = str(application["state"]), str(application.get("diagnostics") or "").strip()[:300]
        if state in _ENDED:
            return DriverStatus(DriverState.GONE, f"{state}, {application.get('finalStatus')}: {words}")
        if state in _WAITS and not application.get("amHostHttpAddress"):
            return DriverStatus(DriverState.WAITING, f"{state}: {self._wait_of(application)}. {words}")
        return DriverStatus(DriverState.RUNNING, state)

    def _wait_of(self, application: Mapping[str, Any]) -> str:
        queue = str(application.get("queue"))
        requests = application.get("resourceRequests") or []
        anywhere = (request for request in requests if request.get("resourceName", "*") == "*")
        sizes = [request.get("capability", {}) for request in anywhere]
        asked = ", ".join(f"{size.get('memory')} MB and {size.get('vCores')} cores" for size in sizes)
        wait = f"it waits in queue {queue}" + (f" for {asked}" if asked else "")
        for figures in self._queues.value():
            if queue in {figures.get("queueName"), figures.get("queuePath")} and "usedCapacity" in figures:
                used = figures.get("resourcesUsed") or {}
                return (
                    f"{wait}; {figures['usedCapacity']} % of the queue's capacity are used: "
                    f"{used.get('memory')} MB and {used.get('vCores')} cores"
                )
        return wait

    def _read_queues(self) -> list[Mapping[str, Any]]:
        try:
            told = self._ask("GET", "scheduler").said.get("scheduler", {}).get("schedulerInfo", {})
        except ClusterUnreachableError:
            return []
        return list(queues(told))

    def kill(self, driver: str) -> None:
        """See `ClusterManager.kill`. Applications that are not ours are not killed."""
        path = f"apps/{quote(driver, safe='')}"
        application = self._ask("GET", path).said.get("app")
        if application is None or not self._is_ours(application) or application["state"] in _ENDED:
            return
        answer = self._ask("PUT", f"{path}/state", {"state": "KILLED"})
        if answer.status not in {200, 202, 404}:
            raise ClusterUnreachableError(f"the ResourceManager does not kill {driver}: {_told(answer)}")

    def _ask(self, method: str, what: str, said: Mapping[str, str] | None = None) -> Response:
        """Send a request to the active ResourceManager. Raises ClusterUnreachableError."""
        join = "&" if "?" in what else "?"
        path = f"/ws/v1/cluster/{what}{join}{urlencode({'user.name': self._user})}"
        body = None if said is None else json.dumps(said).encode()
        reasons = []
        for url in self._rest:
            try:
                answer = ask(method, f"{url}{path}", body)
            except (NotSentError, NoAnswerError) as exc:
                reasons.append(f"{url}: {exc}")
                continue
            if answer.status < 500:
                self._rest = (url, *(other for other in self._rest if other != url))
                return answer
            reasons.append(f"{url}: {_told(answer)}")
        raise ClusterUnreachableError("no ResourceManager that leads answers: " + "; ".join(reasons))


def tag_of(name: str) -> str:
    """An application's tag. YARN ignores case, and allows 100 ASCII characters without commas."""
    return _STEM + hashlib.sha256(name.encode()).hexdigest()[:40]


def hadoop_user(environment: Mapping[str, str]) -> str:
    """The Hadoop user of a process with this environment, without Kerberos."""
    return environment.get("HADOOP_USER_NAME") or pwd.getpwuid(os.geteuid()).pw_name


def _interpreter(conf: Mapping[str, str]) -> dict[str, str]:
    """The hosts' Python. Without these, Spark's client would pass on the worker's Python."""
    names = [f"{VARIABLES}.{name}" for name in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON")]
    python = conf.get(names[0]) or conf.get("spark.pyspark.python") or "python3"
    return {name: conf.get(name, python) for name in names}


def queues(queue: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """A queue of the capacity scheduler, and all queues below it."""
    yield queue
    for below in (queue.get("queues") or {}).get("queue") or []:
        yield from queues(below)


def _told(answer: Response) -> str:
    message = (answer.said.get("RemoteException") or {}).get("message", "")
    return f"{answer.status} {message}"[:300]


def _reason(said: str) -> str:
    """The exception in a client's output, or else its last lines."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    named = [line for line in lines if line.startswith("Exception in thread")]
    return " / ".join(named[:1] or lines[-3:])[:500]
